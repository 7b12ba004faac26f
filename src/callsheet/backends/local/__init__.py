"""The local backend: an experiment as supervised processes on this machine."""
