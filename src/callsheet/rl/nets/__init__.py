"""Policy and value networks: what they are (`network`), their parameters, running them in NumPy, training them in `torch`."""
