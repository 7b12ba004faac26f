"""How to talk to the API server: credentials, requests, streams, and its errors in plain words."""
