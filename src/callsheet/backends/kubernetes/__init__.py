"""The Kubernetes backend: the same experiment as plain objects, nothing installed in the cluster.

`render` and everything it stands on are pure and need no client library.
"""
