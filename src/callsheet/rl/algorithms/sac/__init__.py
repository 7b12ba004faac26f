"""Soft actor-critic: continuous control from a replay, with two critics and a temperature that adjusts itself.

Haarnoja et al. 2018, https://arxiv.org/abs/1812.05905.
"""
