"""Deep Q-learning from a prioritized replay: double, dueling, over several steps, with many actors (Ape-X).

Horgan et al. 2018, https://arxiv.org/abs/1803.00933. Each environment explores with a chance of its own, from often to
hardly ever; actors tell the replay at once how surprising their transitions are.
"""
