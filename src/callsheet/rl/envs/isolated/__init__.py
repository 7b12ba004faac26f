"""Environments in worker processes, which are restarted when they crash or hang."""
