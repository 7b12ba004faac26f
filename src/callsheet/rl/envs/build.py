"""Make environments in this process, in the fastest way that each of them offers."""

from __future__ import annotations

import importlib
import inspect
import logging
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import gymnasium as gym

from callsheet.errors import Misconfigured
from callsheet.rl.envs.adapters import envpool
from callsheet.rl.envs.adapters.sequential import Env, SequentialEnvironments
from callsheet.rl.envs.adapters.vector import from_gymnasium
from callsheet.rl.envs.base import Environments, EnvRequest
from callsheet.rl.envs.lookup import (
    ATARI,
    EnvPoolTask,
    Factory,
    Registered,
    check_options,
    explain_missing,
    find,
)
from callsheet.rl.spaces import Family

log = logging.getLogger("callsheet.rl")
_warned: set[str] = set()


def build(request: EnvRequest) -> Environments:
    """Make the environments. Errors in the environment's own code are raised unchanged."""
    source = find(request.env)
    if request.render_mode:
        _render_without_a_screen()
    try:
        if isinstance(source, EnvPoolTask):
            if request.render_mode:
                raise Misconfigured(
                    f"{request.env} cannot be rendered", fix="use the same game from Gymnasium to see it"
                )
            return envpool.build(source.task, request)
        if isinstance(source, Factory):
            return _from_factory(source, request)
        return _from_gymnasium(source, request)
    except gym.error.DependencyNotInstalled as error:
        raise explain_missing(request.env, error) from error


def _render_without_a_screen() -> None:
    """Keep rendering libraries from looking for a screen, and pygame from greeting on standard output."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")) and sys.platform == "linux":
        os.environ.setdefault("MUJOCO_GL", "egl")
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")


def _from_gymnasium(source: Registered, request: EnvRequest) -> Environments:
    spec, render_mode = source.spec, request.render_mode
    if source.entry == ATARI:
        from callsheet.rl.envs.adapters import atari

        if render_mode is None:
            return from_gymnasium(atari.vector(spec.kwargs, request), request, "atari")
        return SequentialEnvironments([atari.single(spec.kwargs, request)], request, "atari")
    if source.family == "mujoco":
        _log_mujoco_warnings()
    if spec.vector_entry_point is not None and render_mode is None and not spec.additional_wrappers:
        mode = gym.VectorizeMode.VECTOR_ENTRY_POINT
        vector = _call(
            request.env,
            gym.make_vec,
            spec.id,
            request.options,
            num_envs=request.count,
            vectorization_mode=mode,
        )
        return from_gymnasium(vector, request, source.family)
    options = request.options | ({"render_mode": render_mode} if render_mode else {})
    # Our own adapter reports what Gymnasium's checker would, in plainer words.
    envs = [
        _call(request.env, gym.make, spec.id, options, disable_env_checker=True) for _ in range(request.count)
    ]
    return SequentialEnvironments(envs, request, source.family)


def _call(name: str, maker: Any, spec_id: str, options: dict[str, Any], **more: Any) -> Any:
    try:
        return maker(spec_id, **more, **options)
    except TypeError as error:
        for option in options:
            if f"'{option}'" in str(error):
                raise Misconfigured(
                    f"{name} has no option {option!r}",
                    fix="remove it, or see the environment's documentation",
                ) from error
        raise


def _from_factory(source: Factory, request: EnvRequest) -> Environments:
    name, options = request.env, dict(request.options)
    parameters: Mapping[str, inspect.Parameter] = {}
    with suppress(TypeError, ValueError):  # some callables written in C have no signature
        parameters = inspect.signature(source.call).parameters
    if not any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()):
        check_options(name, options, [key for key in parameters if key not in ("num_envs", "render_mode")])
    if "num_envs" in parameters:
        options["num_envs"] = request.count
    if request.render_mode is not None:
        if "render_mode" not in parameters:
            raise Misconfigured(
                f"{name} takes no render_mode", fix="let the factory accept render_mode and pass it on"
            )
        options["render_mode"] = request.render_mode
    made = source.call(**options)
    if isinstance(made, gym.vector.VectorEnv):
        return from_gymnasium(made, request, _family(made))
    if not isinstance(made, gym.Env):
        raise Misconfigured(
            f"{name} returned {type(made).__name__}, not an environment",
            fix="let it return a gymnasium.Env or a gymnasium.vector.VectorEnv",
        )
    envs: list[Env] = [made, *(source.call(**options) for _ in range(request.count - 1))]
    return SequentialEnvironments(envs, request, _family(made))


def _family(made: Any) -> Family:
    spec = getattr(made, "spec", None)
    return Registered(spec).family if spec is not None else "other"


def _log_mujoco_warnings() -> None:
    """Log each of its warnings once. By default it writes `MUJOCO_LOG.TXT` into the working folder."""
    try:
        library = importlib.import_module("mujoco")
    except ImportError:
        return  # the environment reports that better
    library.set_mju_user_warning(_log_once)


def _log_once(text: str | bytes) -> None:
    message = text.decode(errors="replace") if isinstance(text, bytes) else text
    if message not in _warned:
        _warned.add(message)
        log.warning("MuJoCo: %s", message.strip())
