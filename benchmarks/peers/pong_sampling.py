"""Pong with random actions and nothing else: `pong_sampling.py envpool|ale`."""

import os
import sys
import time

import numpy as np
from payloads import report

chance = np.random.default_rng(0)
if sys.argv[1] == "envpool":
    import envpool

    games = envpool.make("Pong-v5", env_type="gymnasium", num_envs=8, batch_size=4, num_threads=2)
    games.async_reset()

    def step() -> int:
        *_, info = games.recv()
        games.send(chance.integers(0, 6, 4), info["env_id"])
        return 4
else:
    from ale_py.vector_env import AtariVectorEnv

    games = AtariVectorEnv(game="pong", num_envs=8, num_threads=2)
    games.reset()

    def step() -> int:
        games.step(chance.integers(0, 6, 8))
        return 8


for _ in range(20):
    step()
begun, steps = time.perf_counter(), 0
while time.perf_counter() - begun < 6:
    steps += step()
report(sys.argv[1], steps_per_s=steps / (time.perf_counter() - begun))
os._exit(0)
