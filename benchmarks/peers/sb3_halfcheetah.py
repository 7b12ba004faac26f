"""Stable-Baselines3's SAC on HalfCheetah with its own defaults: `sb3_halfcheetah.py SEED [STEPS]`"""

import sys
import time

import gymnasium as gym
import numpy as np
import torch
from payloads import report
from stable_baselines3 import SAC
from stable_baselines3.common.monitor import Monitor

torch.set_num_threads(2)
seed = int(sys.argv[1])
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 100_000
model = SAC("MlpPolicy", Monitor(gym.make("HalfCheetah-v5")), learning_starts=1000, device="cpu", seed=seed)
model.learn(min(2000, steps))  # what is compared is learning, not the random steps before
begun = time.perf_counter()
model.learn(steps - model.num_timesteps, reset_num_timesteps=False)
took = time.perf_counter() - begun
last = [one["r"] for one in list(model.ep_info_buffer)[-20:]]
report("SB3", sampled=float(np.mean(last)), steps_per_s=(steps - min(2000, steps)) / took, steps=steps)
