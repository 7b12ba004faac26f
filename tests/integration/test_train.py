"""`callsheet train` as a user types it, with real processes: it gets there, repeats itself, and survives kills."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from local_runs import PROGRAMS, eventually, kill, lines, replica, until
from PIL import Image
from s3_server import BUCKET

from callsheet.backends.base import backend
from callsheet.backends.local.client import LocalRun
from callsheet.cli.main import call
from callsheet.plan.load import load
from callsheet.rl import load_policy
from callsheet.rl.checkpoints import FOLDER, find_policy
from callsheet.store import all_sets, open_store

PATIENCE = 300.0
TRAIN = ["train", "ppo", "--env", "CartPole-v1", "--actors", "2"]


def callsheet(*arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    """The command, for somebody who has activated the virtual environment."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [sys.executable, "-m", "callsheet", *arguments],
        input=given,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def done(*arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    """The command, which must end well."""
    found = callsheet(*arguments, given=given)
    assert found.returncode == 0, found.stdout + found.stderr
    return found


def results(name: str) -> Path:
    """The folder of the only run of that name."""
    (found,) = (Path("runs") / name).iterdir()
    return found


def fingerprint(arrays: Mapping[str, np.ndarray]) -> str:
    """The SHA-256 of weights."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(name.encode() + np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


def curve(folder: Path) -> list[dict[str, Any]]:
    text = (folder / "metrics" / "curve.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.long
def test_a_training_reaches_its_goal_and_leaves_a_policy_that_can_be_used(folder: Path) -> None:
    ended = done(*TRAIN, "--stop-sampled", "475", "--seed", "1", "--evaluate-every", "1", "--videos", "1")
    assert "done: the last 20 sampled episodes had a mean return of" in ended.stdout
    assert "callsheet plot ppo-cartpole-v1" in ended.stderr
    assert "were dropped" not in ended.stdout, "what was on its way when it ended is not worth a word"
    run = results("ppo-cartpole-v1")
    result = json.loads((run / "result.json").read_text())
    assert result["return"] >= 475
    assert result["versions"]["callsheet"]
    assert result["seed"] == 1
    points = curve(run)
    assert points[-1]["steps"] == result["steps"]
    assert points[-1]["return"] >= 475
    evaluation = json.loads(next(iter(sorted((run / "evaluations").glob("*.json")))).read_text())
    assert len(evaluation["returns"]) == 20
    (video,) = evaluation["videos"]
    with Image.open(run / video) as film:
        assert 5 < film.n_frames <= evaluation["steps"][0] + 1, (
            "a picture that is like the last is not repeated"
        )

    told = json.loads(done("evaluate", "ppo-cartpole-v1", "--episodes", "4", "--video", "-o", "json").stdout)
    assert told["mean"] == np.mean(told["returns"])
    assert told["mean"] > 200
    assert Path(told["videos"][0]).stat().st_size > 1000
    again = json.loads(done("evaluate", str(run), "--episodes", "4", "-o", "json").stdout)
    assert again["checkpoint"] == told["checkpoint"]
    assert load_policy(str(run))(np.zeros(4)) in (0, 1)


@pytest.mark.long
def test_a_seed_gives_the_same_weights_in_processes_from_a_file_and_in_one_process(folder: Path) -> None:
    wish = [*TRAIN, "--stop-steps", "6000", "--seed", "3", "--evaluate-every", "0"]
    done(*wish, "--name", "direct")
    text = done(*wish, "--name", "from-file", "--render").stdout
    done("run", "-f", "-", given=text)
    Path("from-file.yaml").write_text(text)
    (loaded,) = load(["from-file.yaml"])
    Path("train.json").write_text(loaded.experiment.spec.files["train.json"])
    alone = subprocess.run(
        [sys.executable, str(PROGRAMS / "train_in_one_process.py"), "train.json", "weights.npz"],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert alone.returncode == 0, alone.stderr
    prints = {
        name: fingerprint(find_policy(open_store(str(results(name))), "newest")[0])
        for name in ("direct", "from-file")
    }
    with np.load("weights.npz") as weights:
        prints["alone"] = fingerprint(dict(weights))
    assert len(set(prints.values())) == 1, prints


@pytest.mark.exclusive
def test_a_training_survives_the_death_of_an_actor_and_of_its_learner(folder: Path) -> None:
    wish = [*TRAIN, "--stop-steps", "150000", "--checkpoint-every", "0.3", "--evaluate-every", "0"]
    name = done(*wish, "-d", "-o", "name").stdout.strip()
    run = backend("local").find(name)
    assert isinstance(run, LocalRun)
    try:
        kept = open_store(str(results("ppo-cartpole-v1"))).sub(FOLDER)
        eventually(lambda: all_sets(kept), within=60)
        killed = kill(until(run, lambda status: replica(status, "actor/1").containers[0].pid), "actor/1")
        begun = time.monotonic()
        until(run, lambda status: replica(status, "actor/1").containers[0].pid not in (None, 0, killed))
        assert time.monotonic() - begun < 2
        newest = all_sets(kept)[0].number
        eventually(lambda: all_sets(kept)[0].number > newest, within=30)
        saved = step(all_sets(kept)[0].name)

        os.kill(pid(run, "learner/0"), signal.SIGKILL)
        ended = run.wait(PATIENCE)
        assert (ended.phase, ended.exit_code) == ("Succeeded", 0)
        said = lines(run, "learner/0")
        (resumed,) = [line for line in said if line.startswith("resumed from step-")]
        assert step(resumed) >= saved, "the newest checkpoint, not an earlier one"
        points = curve(results("ppo-cartpole-v1"))
        steps = [point["steps"] for point in points]
        assert steps == sorted(steps), "the curve goes on where the checkpoint was"
        assert steps[-1] >= 60_000
        assert [point["elapsed"] for point in points] == sorted(point["elapsed"] for point in points)
    finally:
        run.stop(kill=True)
        run.wait(20)


def step(text: str) -> int:
    """The number in a checkpoint's name: step-000123."""
    match = re.search(r"step-(\d+)", text)
    assert match, text
    return int(match[1])


def pid(run: LocalRun, name: str) -> int:
    found = replica(run.status(), name).containers[0].pid
    assert found
    return found


@pytest.mark.long
def test_a_training_that_was_stopped_is_taken_up_by_another_run(folder: Path) -> None:
    wish = [*TRAIN, "--evaluate-every", "0", "--checkpoint-every", "0.5", "--name", "first"]
    process = subprocess.Popen(
        [sys.executable, "-m", "callsheet", *wish],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        eventually(lambda: list(Path("runs/first").glob("*/checkpoints/step-*")), within=60)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()  # its run ends with it
    assert process.returncode == 130, said
    assert "Training until Ctrl-C, which writes a checkpoint" in said
    assert "callsheet train ppo --resume first" in said
    (kept, *_) = all_sets(open_store(str(results("first"))).sub(FOLDER))
    steps = int(kept.info["steps"])
    first = curve(results("first"))
    assert steps == first[-1]["steps"], "nothing that was learned is lost"

    ended = done(
        "train", "ppo", "--resume", "first", "--stop-steps", str(steps + 3000), "--evaluate-every", "0"
    )
    assert f"resumed from {kept.name}: {steps:,} steps" in ended.stdout
    second = results("ppo-cartpole-v1")
    points = curve(second)
    assert points[: len(first)] == first, "the new run has the whole curve"
    assert points[-1]["steps"] > steps
    result = json.loads((second / "result.json").read_text())
    assert result["steps"] >= steps + 3000


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        (["ppo", "--env", "CartPol-v1"], "did you mean CartPole-v1?"),
        (["pp", "--env", "CartPole-v1"], "did you mean ppo?"),
        (["ppo", "--env", "CartPole-v1", "--set", "learning_rat=1"], "did you mean learning_rate?"),
        (["ppo", "--env", "CartPole-v1", "--set", "network.hiden=8"], "did you mean network.hidden?"),
        (["ppo", "--env", "CartPole-v1", "--set", "gamma=high"], "the setting 'gamma' of ppo: Expected"),
        (["sac", "--env", "CartPole-v1"], "SAC needs continuous actions"),
        (["dqn", "--env", "Pendulum-v1"], "DQN needs discrete actions"),
        (["ppo", "--env", "CartPole-v1", "--set", "network.torso=nature"], "'nature' is for images"),
        (["ppo", "--env", "CartPole-v1", "--env-option", "color=1"], "CartPole-v1 has no option 'color'"),
        (["ppo"], "a training needs an environment"),
        (["ppo", "--env", "CartPole-v1", "--resume", "nothing"], "there is no run 'nothing'"),
    ],
)
def test_a_mistake_is_told_before_anything_starts(wish: list[str], said: str, folder: Path) -> None:
    found = callsheet("train", *wish)
    assert found.returncode == 2
    assert said in found.stderr
    assert not Path("runs").exists()


def test_roles_that_cannot_do_what_their_file_says_fail_at_once(folder: Path) -> None:
    """A module of the user's is first imported by the actors, where the run is: nobody could tell before."""
    Path("games.py").write_text(
        "import gymnasium\n\ndef pole(**_):\n    return gymnasium.make('CartPole-v1')\n"
    )
    found = callsheet("train", "sac", "--env", "games:pole", "--name", "wrong")
    assert found.returncode == 78
    assert "exit code 78; a restart cannot fix this" in found.stderr
    assert "SAC needs continuous actions" in found.stdout


@pytest.mark.usefixtures("s3")
def test_curves_are_drawn_from_a_bucket(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = f"s3://{BUCKET}/{folder.name}/ppo-cartpole-v1/abc"
    points = [{"elapsed": float(n), "steps": n, "return": float(n)} for n in range(10)]
    text = "".join(json.dumps(point) + "\n" for point in points)
    open_store(results).put("metrics/curve.jsonl", text.encode())
    assert call(["plot", results]) == 0
    assert "── ppo-cartpole-v1/abc" in capsys.readouterr().out


@pytest.mark.long
def test_a_policy_server_chooses_the_actions_of_all_actors(folder: Path) -> None:
    """Central inference: the actors have no policy, and the server answers both of them with the newest."""
    wanted = ["--inference", "central", "--stop-sampled", "120", "--seed", "1", "--evaluate-every", "0"]
    done("train", "impala", "--env", "CartPole-v1", "--actors", "2", "--name", "central", *wanted)
    assert json.loads((results("central") / "result.json").read_text())["return"] >= 120
