"""The replay's server side: tables, their rate limits and selectors, and snapshots of them."""
