"""Proximal policy optimization in steps: all actors play, then the learner learns while they play on.

Schulman et al. 2017, https://arxiv.org/abs/1707.06347. Rollouts lag one version behind, always, so that a seed gives
the same weights however the processes are timed.
"""
