"""EnvPool's environments, `envpool:TASK`. Used only on request, because its games differ in details from Gymnasium's."""

from __future__ import annotations

import importlib
import warnings
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from callsheet.errors import UserError, did_you_mean
from callsheet.rl.envs.adapters.spaces import SpaceAdapter
from callsheet.rl.envs.adapters.vector import VectorEnvironments
from callsheet.rl.envs.base import EnvRequest
from callsheet.rl.envs.lookup import ENVPOOL, check_options
from callsheet.rl.spaces import Family

_RESERVED: Final = ("num_envs", "batch_size", "seed", "env_seed", "task", "base_path")


def build(task: str, request: EnvRequest) -> VectorEnvironments:
    """Make the environments of an EnvPool task."""
    try:
        library = importlib.import_module(ENVPOOL)
    except ImportError as error:
        raise UserError(
            f"{request.env} needs EnvPool, which is not installed", fix="pip install envpool"
        ) from error
    if task not in (tasks := library.list_all_envs()):
        raise UserError(
            f"EnvPool has no task {task!r}",
            fix=did_you_mean(task, tasks, "use one of envpool.list_all_envs()"),
        )
    spec = library.make_spec(task)
    check_options(
        request.env, request.options, [field for field in spec.config._fields if field not in _RESERVED]
    )
    vector = _SeedablePool(library, task, request.count, request.options)
    adapter = SpaceAdapter(vector.observation_space, vector.action_space, request.env)
    return VectorEnvironments(vector, adapter, request, _family(spec))


def _family(spec: Any) -> Family:
    """By the EnvPool package of the environment."""
    folders: dict[str, Family] = {"atari": "atari", "mujoco": "mujoco", "classic_control": "classic"}
    modules = [kind.__module__.split(".") for kind in type(spec).__mro__]
    names = [module[1] for module in modules if module[0] == ENVPOOL and len(module) > 1]
    return next((folders[name] for name in names if name in folders), "other")


class _SeedablePool:
    """A pool that can be reseeded: EnvPool itself takes a seed only when it is made."""

    def __init__(self, library: Any, task: str, count: int, options: dict[str, Any]) -> None:
        self._library, self._task, self._count, self._options = library, task, count, options
        self._env = self._make(0)
        self._kind = np.int32 if hasattr(self.action_space, "n") else np.float32

    def _make(self, seed: int) -> Any:
        with warnings.catch_warnings():
            # It rounds the bounds of its spaces, and Gymnasium warns about that each time.
            warnings.simplefilter("ignore")
            made = self._library.make(
                self._task, env_type="gymnasium", num_envs=self._count, seed=seed, **self._options
            )
            self.observation_space, self.action_space = made.observation_space, made.action_space
            return made

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self._env.close()
            self._env = self._make(seed)
        observation, info = self._env.reset()
        return observation, info

    def step(self, actions: NDArray[Any]) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        answer: tuple[Any, Any, Any, Any, dict[str, Any]] = self._env.step(actions.astype(self._kind))
        return answer

    def close(self) -> None:
        self._env.close()
