"""Stable-Baselines3's PPO on Pong: 8 games, 128 steps, 4 epochs of minibatches of 256."""

import time

import ale_py
import gymnasium as gym
import torch
from payloads import report
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import VecFrameStack

torch.set_num_threads(2)
gym.register_envs(ale_py)
games = VecFrameStack(make_atari_env("PongNoFrameskip-v4", n_envs=8, seed=0), 4)
model = PPO("CnnPolicy", games, n_steps=128, n_epochs=4, batch_size=256, device="cpu")
model.learn(1024)
begun = time.perf_counter()
model.learn(8192, reset_num_timesteps=False)
took = time.perf_counter() - begun
report("SB3", steps_per_s=8192 / took, steps=8192)
