"""The replay's client side: inserting items, sampling batches, changing priorities."""
