"""Sample Factory's APPO on CartPole, two workers: `sample_factory_cartpole.py SEED`. Only its speed is taken."""

import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import gymnasium as gym
from payloads import report
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import run_rl


def make(name: str, config: Any, env_config: Any, render_mode: str | None = None) -> Any:
    """The environment, in each of its processes."""
    return gym.make("CartPole-v1", render_mode=render_mode)


def main(seed: str) -> None:
    """Train for so many steps; its own log tells how fast that was."""
    register_env("cartpole", make)
    with tempfile.TemporaryDirectory() as folder:
        words = [
            *("--algo=APPO", "--env=cartpole", f"--train_dir={folder}", "--experiment=x", "--device=cpu"),
            *("--num_workers=2", "--num_envs_per_worker=8", "--worker_num_splits=2", "--rollout=32"),
            *("--batch_size=512", "--num_epochs=4", "--train_for_env_steps=100000", f"--seed={seed}"),
        ]
        parser, _ = parse_sf_args(words)
        run_rl(parse_full_cfg(parser, words))
        log = Path(folder, "x", "sf_log.txt").read_text()
    # Over all, its processes' start included; and of the last ten seconds, as often as it looked.
    speeds = re.findall(r"(?:\bFPS|10 sec): ([0-9.]+)", log)
    report("Sample Factory", steps_per_s=max(map(float, speeds)))


if __name__ == "__main__":
    main(sys.argv[1])
