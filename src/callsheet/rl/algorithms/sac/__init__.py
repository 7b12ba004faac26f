"""Soft actor-critic: continuous control from a replay, with two critics and an automatic temperature.

Haarnoja et al. 2018, https://arxiv.org/abs/1812.05905.
"""
