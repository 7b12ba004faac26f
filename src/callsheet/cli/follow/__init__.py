"""Follow runs in the foreground: read their logs and status, show them, and react to signals until they end."""
