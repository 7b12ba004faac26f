"""`callsheet train dqn` and `sac` as a user types them, with real processes: they learn, and survive kills."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from local_runs import eventually, lines
from test_train import PATIENCE, curve, done, pid, results

from callsheet.backends.base import backend
from callsheet.backends.local.client import LocalRun
from callsheet.rl.checkpoints import FOLDER
from callsheet.store import all_sets, open_store


@pytest.mark.long
def test_dqn_learns_from_two_shards_though_its_learner_and_a_shard_are_killed(folder: Path) -> None:
    wish = ["train", "dqn", "--env", "CartPole-v1", "--actors", "2", "--replay-shards", "2"]
    # Chance gets 20; with unlucky settings it stays at 130.
    wish += ["--stop-sampled", "150", "--stop-seconds", "240", "--checkpoint-every", "1"]
    name = done(*wish, "--evaluate-every", "0", "-d", "-o", "name").stdout.strip()
    run = backend("local").find(name)
    assert isinstance(run, LocalRun)
    try:
        store = open_store(str(results("dqn-cartpole-v1")))
        eventually(lambda: all_sets(store.sub(FOLDER)), within=60)
        eventually(lambda: all_sets(store.sub(f"{FOLDER}/replay-0/replay")), within=30)
        os.kill(pid(run, "learner/0"), signal.SIGKILL)
        os.kill(pid(run, "replay/0"), signal.SIGKILL)
        ended = run.wait(PATIENCE)
        assert (ended.phase, ended.exit_code) == ("Succeeded", 0)
        said = lines(run, "learner/0")
        assert any(line.startswith("resumed from step-") for line in said), said
        assert "had a mean return of" in said[-1], said
    finally:
        run.stop(kill=True)
        run.wait(20)
    points = [point for point in curve(results("dqn-cartpole-v1")) if "return" in point]
    steps = [point["steps"] for point in points]
    assert steps == sorted(steps), "the curve goes on where the checkpoint was"
    assert points[0]["return"] < 60
    assert points[-1]["return"] >= 150


@pytest.mark.long
def test_sac_swings_a_pendulum_up(folder: Path) -> None:
    wish = ["train", "sac", "--env", "Pendulum-v1", "--actors", "2", "--evaluate-every", "0"]
    ended = done(*wish, "--stop-sampled", "-500", "--stop-seconds", "240")
    assert "done: the last 20 sampled episodes had a mean return of" in ended.stdout, ended.stdout
    points = [point for point in curve(results("sac-pendulum-v1")) if "return" in point]
    assert points[0]["return"] < -600, "the first twenty, some of them at random"
    assert points[-1]["return"] >= -500
    assert points[-1]["temperature"] < 1.0
