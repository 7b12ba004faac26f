"""Environments for actors and evaluators: Gymnasium's, EnvPool's or your own, many at once, and safe from bad simulators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from callsheet.errors import UserError
from callsheet.rl.envs.base import RGB, Environments, EnvRequest, Step
from callsheet.rl.spaces import Spaces

__all__ = ["Environments", "Step", "make", "spaces_of"]


def make(
    env: str,
    count: int,
    *,
    seed: int,
    options: Mapping[str, Any] | None = None,
    step_timeout: float = 60,
    start_timeout: float = 300,
    isolate: bool | None = None,
    processes: int | None = None,
    render_mode: str | None = None,
) -> Environments:
    """Make `count` environments that are stepped together.

    `env` is a Gymnasium id (`CartPole-v1`, `ALE/Pong-v5`), `module:Id-v0` if importing the module registers the id,
    `envpool:TASK`, or `package.module:factory`: a callable that takes the options and returns an environment or a vector
    environment. Equal seeds give equal episodes. Every environment has its own seed, and actors with different seeds share
    none.

    With `isolate`, the environments run in worker processes (`processes` of them; default: one per core, and one for a
    vector environment). A worker that dies, raises, or takes longer than `step_timeout` seconds for a step
    (`start_timeout` to start) is killed and restarted. The default is to isolate everything except the environments of
    Gymnasium, ale-py and EnvPool.
    """
    from callsheet.rl.envs.build import build
    from callsheet.rl.envs.lookup import is_trusted, is_vector, portable_spec

    _check(env, count, options, step_timeout, start_timeout)
    if render_mode not in (None, RGB):
        raise UserError(f"the render mode {render_mode!r} is not supported", fix=f"use {RGB!r}")
    if render_mode and count != 1:
        raise UserError(f"cannot render {count} environments at once", fix="make one: count=1")
    request = EnvRequest(env, count, seed, dict(options or {}), render_mode)
    if isolate is None:
        isolate = not is_trusted(env)
    if not isolate:
        return build(request)
    from callsheet.rl.envs.isolated.environments import IsolatedEnvironments

    return IsolatedEnvironments(
        request,
        portable_spec(env),
        step_timeout=step_timeout,
        start_timeout=start_timeout,
        processes=processes or (1 if is_vector(env) else None),
    )


def spaces_of(
    env: str,
    *,
    options: Mapping[str, Any] | None = None,
    start_timeout: float = 300,
    isolate: bool | None = None,
) -> Spaces:
    """The spaces of an environment. It is made once to find out."""
    environments = make(env, 1, seed=0, options=options, start_timeout=start_timeout, isolate=isolate)
    try:
        return environments.spaces
    finally:
        environments.close()


def _check(
    env: str, count: int, options: Mapping[str, Any] | None, step_timeout: float, start_timeout: float
) -> None:
    if not env.strip():
        raise UserError("the environment's name is empty", fix="use an id such as 'CartPole-v1'")
    if count < 1:
        raise UserError(f"cannot make {count} environments", fix="make at least one")
    for name, limit in (("step_timeout", step_timeout), ("start_timeout", start_timeout)):
        if not limit > 0:
            raise UserError(f"{name} is {limit}", fix="use a number of seconds above 0")
    for key in options or {}:
        if not isinstance(key, str):
            raise UserError(f"the option {key!r} of {env} is not a name", fix="use strings as option names")
