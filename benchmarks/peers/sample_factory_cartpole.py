"""Sample Factory's APPO on CartPole, two workers: `sample_factory_cartpole.py SEED`. Only its speed is taken."""

import contextlib
import io
import re
import sys
import tempfile
from pathlib import Path

import gymnasium as gym
from payloads import report
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import run_rl

register_env("cartpole", lambda *_, render_mode=None, **__: gym.make("CartPole-v1", render_mode=render_mode))
with tempfile.TemporaryDirectory() as folder:
    words = [
        *("--algo=APPO", "--env=cartpole", f"--train_dir={folder}", "--experiment=x", "--device=cpu"),
        *("--num_workers=2", "--num_envs_per_worker=8", "--worker_num_splits=2", "--rollout=32"),
        *("--batch_size=512", "--num_epochs=4", "--train_for_env_steps=150000", f"--seed={sys.argv[1]}"),
    ]
    parser, _ = parse_sf_args(words)
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
        run_rl(parse_full_cfg(parser, words))
    speeds = re.findall(r"FPS: ([0-9.]+)", told.getvalue())
    if not speeds:
        speeds = re.findall(r"FPS: ([0-9.]+)", Path(folder, "x", "sf_log.txt").read_text())
report("Sample Factory", steps_per_s=float(speeds[-1]))
