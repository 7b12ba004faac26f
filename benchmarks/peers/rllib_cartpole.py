"""RLlib's PPO on CartPole with two runners, as its own tuned example has it. `rllib_cartpole.py SEED`"""

import time

WHOLE = time.perf_counter()

import os  # noqa: E402
import sys  # noqa: E402

import ray  # noqa: E402
from payloads import report  # noqa: E402
from ray.rllib.algorithms.ppo import PPOConfig  # noqa: E402

ray.init(num_cpus=4, include_dashboard=False, logging_level="ERROR")
config = (
    PPOConfig()
    .environment("CartPole-v1")
    .env_runners(num_env_runners=2, num_envs_per_env_runner=8)
    .learners(num_learners=0)
    .training(
        lr=0.0003,
        num_epochs=6,
        train_batch_size_per_learner=2000,
        minibatch_size=256,
        vf_loss_coeff=0.01,
        lambda_=0.95,
    )
    .debugging(seed=int(sys.argv[1]))
)
# One rule for all: the mean of the last 20 episodes.
config = config.reporting(metrics_num_episodes_for_smoothing=20)
algorithm = config.build_algo()
begun, steps = time.perf_counter(), 0
while time.perf_counter() - begun < 240:
    found = algorithm.train()["env_runners"]
    steps = found.get("num_env_steps_sampled_lifetime", 0)
    if (found.get("episode_return_mean") or 0) >= 475:
        break
took = time.perf_counter() - begun
report("RLlib", train_s=took, whole_s=time.perf_counter() - WHOLE, steps=steps, steps_per_s=steps / took)
os._exit(0)
