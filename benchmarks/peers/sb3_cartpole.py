"""Stable-Baselines3's PPO on CartPole, with the settings its own collection of tuned ones has. `sb3_cartpole.py SEED`"""

import time

WHOLE = time.perf_counter()

import sys  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402
from payloads import report  # noqa: E402
from stable_baselines3 import PPO  # noqa: E402
from stable_baselines3.common.callbacks import BaseCallback  # noqa: E402
from stable_baselines3.common.env_util import make_vec_env  # noqa: E402


class Enough(BaseCallback):
    """Ends when the last 20 episodes have the mean that is wanted."""

    def _on_step(self) -> bool:
        last = list(self.model.ep_info_buffer)[-20:]
        return not (len(last) == 20 and np.mean([one["r"] for one in last]) >= 475)


torch.set_num_threads(1)
seed = int(sys.argv[1])
model = PPO(
    "MlpPolicy",
    make_vec_env("CartPole-v1", n_envs=8, seed=seed),
    n_steps=32,
    batch_size=256,
    gae_lambda=0.8,
    gamma=0.98,
    n_epochs=20,
    ent_coef=0.0,
    learning_rate=lambda left: left * 1e-3,
    clip_range=lambda left: left * 0.2,
    device="cpu",
    seed=seed,
)
begun = time.perf_counter()
model.learn(200_000, callback=Enough())
took = time.perf_counter() - begun
steps = model.num_timesteps
report("SB3", train_s=took, whole_s=time.perf_counter() - WHOLE, steps=steps, steps_per_s=steps / took)
