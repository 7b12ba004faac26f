"""IMPALA: actors never wait, and V-trace corrects for the age of their policies.

Espeholt et al. 2018, https://arxiv.org/abs/1802.01561. With `clip` above 0 it uses PPO's clipped surrogate loss on V-trace
advantages (APPO), which allows several passes over each batch.
"""
