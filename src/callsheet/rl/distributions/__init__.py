"""Distributions over actions in NumPy (for actors) and PyTorch (for learners), with the same names and numbers.

Continuous actions are in the environment's units. Policies work in units where the range is -1..1, and log-probabilities
are densities there. Nothing is imported here, so `distributions.numpy` does not need PyTorch.
"""
