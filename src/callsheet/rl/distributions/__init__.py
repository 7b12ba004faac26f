"""Distributions over actions, once in NumPy (actors) and once in PyTorch (learners): the same names, the same numbers.

Nothing is imported here: who says `distributions.numpy` needs no PyTorch.

Continuous actions have the units of the environment; inside, a policy works in units in which the action's range is
-1..1, and log-probabilities are densities there.
"""
