"""Making environments in this process, by the fastest way that each of them offers."""

from __future__ import annotations

import importlib
import inspect
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from callsheet.errors import Misconfigured
from callsheet.rl.envs.adapters import envpool as pool
from callsheet.rl.envs.adapters.sequential import Env, Plain
from callsheet.rl.envs.adapters.vector import Native, from_gymnasium
from callsheet.rl.envs.base import Environments
from callsheet.rl.envs.lookup import (
    ATARI,
    Factory,
    Pool,
    Registered,
    check_options,
    explain_missing,
    find,
)
from callsheet.rl.spaces import Family

RGB = "rgb_array"


@dataclass(frozen=True)
class Order:
    """What was asked for."""

    name: str
    count: int
    seed: int
    first: int
    options: Mapping[str, Any]
    render_mode: str | None

    def plain(self, envs: Sequence[Env], family: Family) -> Plain:
        return Plain(envs, name=self.name, seed=self.seed, family=family, first=self.first)

    def native(self, env: gym.vector.VectorEnv[Any, Any, Any], family: Family) -> Native:
        return from_gymnasium(
            env, count=self.count, name=self.name, seed=self.seed, family=family, first=self.first
        )


def build(
    name: str, count: int, *, seed: int, options: Mapping[str, Any], render_mode: str | None, first: int = 0
) -> Environments:
    """The environments themselves. An error of the environment's own code comes through as it is."""
    found = find(name)
    if render_mode:
        _draw_without_a_screen()
    order = Order(name, count, seed, first, options, render_mode)
    try:
        if isinstance(found, Pool):
            if render_mode:
                raise Misconfigured(
                    f"{name} has no pictures", fix="make the same game of Gymnasium's to see it"
                )
            return pool.build(found.task, count, name=name, seed=seed, first=first, options=options)
        if isinstance(found, Factory):
            return _from_factory(found, order)
        return _from_gymnasium(found, order)
    except gym.error.DependencyNotInstalled as error:
        raise explain_missing(name, error) from error


def _draw_without_a_screen() -> None:
    """Libraries that draw look for a screen, and pygame greets on standard output, unless told otherwise."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")) and sys.platform == "linux":
        os.environ.setdefault("MUJOCO_GL", "egl")
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")


def _from_gymnasium(found: Registered, order: Order) -> Environments:
    spec, name, options, render_mode = found.spec, order.name, order.options, order.render_mode
    if found.entry == ATARI:
        from callsheet.rl.envs.adapters import atari

        if render_mode is None:
            return order.native(atari.vector(spec.kwargs, order.count, name, options), "atari")
        return order.plain([atari.single(spec.kwargs, name, options)], "atari")
    if found.family == "mujoco":
        _log_mujoco_warnings()
    if spec.vector_entry_point is not None and render_mode is None and not spec.additional_wrappers:
        mode = gym.VectorizeMode.VECTOR_ENTRY_POINT
        made = _call(
            name, gym.make_vec, spec.id, num_envs=order.count, vectorization_mode=mode, options=dict(options)
        )
        return order.native(made, found.family)
    given = dict(options) | ({"render_mode": render_mode} if render_mode else {})
    # What the checker would complain of, our own translation refuses in plainer words.
    envs = [
        _call(name, gym.make, spec.id, disable_env_checker=True, options=given) for _ in range(order.count)
    ]
    return order.plain(envs, found.family)


def _call(name: str, maker: Any, spec_id: str, *, options: dict[str, Any], **how: Any) -> Any:
    try:
        return maker(spec_id, **how, **options)
    except TypeError as error:
        for option in options:
            if f"'{option}'" in str(error):
                raise Misconfigured(
                    f"{name} has no option {option!r}", fix="leave it out, or see its documentation"
                ) from error
        raise


def _from_factory(found: Factory, order: Order) -> Environments:
    name, given = order.name, dict(order.options)
    takes: Mapping[str, inspect.Parameter] = {}
    with suppress(TypeError, ValueError):  # some callables written in C do not tell
        takes = inspect.signature(found.call).parameters
    if not any(each.kind is inspect.Parameter.VAR_KEYWORD for each in takes.values()):
        check_options(name, given, [key for key in takes if key not in ("num_envs", "render_mode")])
    if "num_envs" in takes:
        given["num_envs"] = order.count
    if order.render_mode is not None:
        if "render_mode" not in takes:
            raise Misconfigured(
                f"{name} takes no render_mode", fix="let the factory take render_mode and hand it on"
            )
        given["render_mode"] = order.render_mode
    made = found.call(**given)
    if isinstance(made, gym.vector.VectorEnv):
        return order.native(made, _family(made))
    if not isinstance(made, gym.Env):
        raise Misconfigured(
            f"{name} returned {type(made).__name__}, not an environment",
            fix="let it return a gymnasium.Env or a gymnasium.vector.VectorEnv",
        )
    envs: list[Env] = [made, *(found.call(**given) for _ in range(order.count - 1))]
    return order.plain(envs, _family(made))


def _family(made: Any) -> Family:
    spec = getattr(made, "spec", None)
    return Registered(spec).family if spec is not None else "other"


log = logging.getLogger("callsheet.rl")
_said: set[str] = set()


def _log_mujoco_warnings() -> None:
    """Log each of its warnings once. By default it writes `MUJOCO_LOG.TXT` into the working folder, which may be read-only."""
    try:
        library = importlib.import_module("mujoco")
    except ImportError:
        return  # the environment itself says so, better
    library.set_mju_user_warning(_warned)


def _warned(text: str | bytes) -> None:
    said = text.decode(errors="replace") if isinstance(text, bytes) else text
    if said not in _said:
        _said.add(said)
        log.warning("MuJoCo: %s", said.strip())
