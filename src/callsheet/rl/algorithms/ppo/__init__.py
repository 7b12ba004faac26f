"""Proximal policy optimization, synchronous: the learner waits for all actors, and they play on while it learns.

Schulman et al. 2017, https://arxiv.org/abs/1707.06347. Rollouts are always exactly one version old, so a seed gives the
same weights regardless of timing.
"""
