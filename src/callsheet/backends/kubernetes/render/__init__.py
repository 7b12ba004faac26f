"""From an experiment to Kubernetes objects. Pure: nothing here talks to a cluster."""
