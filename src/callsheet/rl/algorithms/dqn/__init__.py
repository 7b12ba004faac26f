"""Deep Q-learning with prioritized replay, double and dueling networks, n-step returns and many actors (Ape-X).

Horgan et al. 2018, https://arxiv.org/abs/1803.00933. Each environment explores with its own epsilon, from often to almost
never, and actors compute the first priorities themselves.
"""
