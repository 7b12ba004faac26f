"""Sample Factory's APPO on Pong: 8 games, 128 steps, 4 epochs of minibatches of 256. Only its speed is taken."""

import re
import tempfile
from pathlib import Path
from typing import Any

import ale_py  # noqa: F401  its games become known
import gymnasium as gym
import numpy as np
from gymnasium.wrappers import AtariPreprocessing, FrameStack, TransformObservation
from payloads import report
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import run_rl


def make(name: str, config: Any, env_config: Any, render_mode: str | None = None) -> Any:
    """The environment, to the standard protocol, in each of its processes."""
    game = gym.make("PongNoFrameskip-v4", render_mode=render_mode)
    return TransformObservation(FrameStack(AtariPreprocessing(game), 4), np.asarray)


def main() -> None:
    """Train for so many steps; its own log tells how fast that was."""
    register_env("pong", make)
    with tempfile.TemporaryDirectory() as folder:
        words = [
            *("--algo=APPO", "--env=pong", f"--train_dir={folder}", "--experiment=x", "--device=cpu"),
            *("--num_workers=1", "--num_envs_per_worker=8", "--worker_num_splits=2", "--rollout=128"),
            *("--batch_size=256", "--num_batches_per_epoch=4", "--num_epochs=4", "--use_rnn=False"),
            *(
                "--encoder_conv_architecture=convnet_atari",
                "--obs_scale=255.0",
                "--train_for_env_steps=12000",
            ),
        ]
        parser, _ = parse_sf_args(words)
        run_rl(parse_full_cfg(parser, words))
        log = Path(folder, "x", "sf_log.txt").read_text()
    # Over all, its processes' start included; and of the last minute, as often as it looked.
    speeds = re.findall(r"(?:\bFPS|60 sec): ([0-9.]+)", log)
    report("Sample Factory", steps_per_s=max(map(float, speeds)))


if __name__ == "__main__":
    main()
