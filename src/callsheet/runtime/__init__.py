"""The library inside a role: who am I, where are my peers, and how do we feed each other."""
