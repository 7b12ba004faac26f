"""Environments for actors and evaluators: any of Gymnasium's, or one's own, many at once, and safe from bad simulators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from callsheet.errors import UserError
from callsheet.rl.envs.base import Environments, Step
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
    """`count` environments that are stepped together.

    `env` is an id of Gymnasium's (`CartPole-v1`, `ALE/Pong-v5`), `module:Id-v0` where importing the module registers the
    id, `envpool:TASK`, or `package.module:factory`: a callable that takes the options and returns an environment or a vector
    of them. Equal seeds give equal episodes; every environment has a seed of its own, and two actors share none when
    their seeds differ.

    With `isolate` the environments live in processes of their own (`processes` of them; by default one per processor, and
    one for what is a vector already): one that dies, raises an error, or takes longer than `step_timeout` seconds for a
    step (`start_timeout` for starting) is killed and started again. By default that is so for everything that is not
    Gymnasium's own, ale-py's or EnvPool's.
    """
    from callsheet.rl.envs.build import RGB, build
    from callsheet.rl.envs.lookup import is_native, is_trusted, to_carry

    _check(env, count, options, step_timeout, start_timeout)
    if render_mode not in (None, RGB):
        raise UserError(f"the render mode {render_mode!r} cannot be used", fix=f"use {RGB!r}")
    if render_mode and count != 1:
        raise UserError(f"{count} environments cannot be shown at once", fix="make one of them: count=1")
    options = dict(options or {})
    if isolate is None:
        isolate = not is_trusted(env)
    if not isolate:
        return build(env, count, seed=seed, options=options, render_mode=render_mode)
    from callsheet.rl.envs.isolated.environments import Isolated
    from callsheet.rl.envs.isolated.worker import Wish

    return Isolated(
        Wish(env, count, seed, options, render_mode, spec=to_carry(env)),
        step_timeout=step_timeout,
        start_timeout=start_timeout,
        processes=processes or (1 if is_native(env) else None),
    )


def spaces_of(
    env: str,
    *,
    options: Mapping[str, Any] | None = None,
    start_timeout: float = 300,
    isolate: bool | None = None,
) -> Spaces:
    """What an environment looks like; one of them is made for a moment to find out."""
    environments = make(env, 1, seed=0, options=options, start_timeout=start_timeout, isolate=isolate)
    try:
        return environments.spaces
    finally:
        environments.close()


def _check(
    env: str, count: int, options: Mapping[str, Any] | None, step_timeout: float, start_timeout: float
) -> None:
    if not env.strip():
        raise UserError("the name of the environment is empty", fix="give an id such as 'CartPole-v1'")
    if count < 1:
        raise UserError(f"{count} environments cannot be made", fix="ask for one or more")
    for name, limit in (("step_timeout", step_timeout), ("start_timeout", start_timeout)):
        if not limit > 0:
            raise UserError(f"{name} is {limit}", fix="give a number of seconds above 0")
    for key in options or {}:
        if not isinstance(key, str):
            raise UserError(f"the option {key!r} of {env} is no name", fix="name options by words")
