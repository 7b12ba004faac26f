"""IMPALA: actors play without waiting, and V-trace corrects for how old their policy was.

Espeholt et al. 2018, https://arxiv.org/abs/1802.01561. With `clip` above 0 the policy's loss is PPO's clipped surrogate on
V-trace's advantages (APPO), which allows several epochs over each batch.
"""
