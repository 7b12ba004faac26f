"""Find what an environment's name refers to, or explain what is missing or misspelled."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from callsheet.errors import Misconfigured, did_you_mean
from callsheet.rl.spaces import Family

try:
    import gymnasium as gym
except ImportError as error:  # pragma: no cover
    raise Misconfigured("environments need Gymnasium", fix="pip install 'callsheet[rl]'") from error

ATARI: Final = "ale_py.env:AtariEnv"
ENVPOOL: Final = "envpool"
TRUSTED: Final = ("gymnasium.", "ale_py.")
"""Packages whose environments neither crash nor hang, so that they need no worker process."""
_EXTRAS: Final = {"ale_py": "atari", "mujoco": "mujoco", "pygame": "video"}


@dataclass(frozen=True)
class Registered:
    """An environment in Gymnasium's registry."""

    spec: gym.envs.registration.EnvSpec

    @property
    def entry(self) -> str:
        """The location of its class, `module:name`."""
        entry = self.spec.entry_point or self.spec.vector_entry_point
        return entry if isinstance(entry, str) else f"{getattr(entry, '__module__', '')}:"

    @property
    def family(self) -> Family:
        if self.entry.startswith("ale_py."):
            return "atari"
        if self.entry.startswith("gymnasium.envs.classic_control"):
            return "classic"
        return "mujoco" if "mujoco" in self.entry else "other"


@dataclass(frozen=True)
class EnvPoolTask:
    """An EnvPool environment, by its task id."""

    task: str


@dataclass(frozen=True)
class Factory:
    """A callable of the user."""

    call: Callable[..., Any]


def family_of(name: str) -> Family:
    """The family of an environment, without making it or importing the user's module."""
    return "other" if ":" in name else registered(name).family


def is_trusted(name: str) -> bool:
    """Whether it may run in this process. The user's module is not imported to find out."""
    module, colon, _ = name.rpartition(":")
    if colon:
        return module == ENVPOOL or f"{module}.".startswith(TRUSTED)
    return registered(name).entry.startswith(TRUSTED)


def is_vector(name: str) -> bool:
    """Whether it is a vector environment with its own threads, which gains nothing from several processes."""
    module, colon, _ = name.rpartition(":")
    if colon:
        return module == ENVPOOL
    source = registered(name)
    return source.entry == ATARI or source.spec.vector_entry_point is not None


def portable_spec(name: str) -> str:
    """An entry of Gymnasium's registry as JSON, for a worker process that may not have registered it."""
    if ":" in name:
        return ""
    spec = registered(name).spec
    try:
        return spec.to_json()
    except (TypeError, ValueError) as error:
        raise Misconfigured(
            f"{name} cannot run in a worker process, because it is registered with objects of this one: {error}",
            fix="register it with entry_point='module:name', or use isolate=False",
        ) from error


def find(name: str) -> Registered | EnvPoolTask | Factory:
    """What `CartPole-v1`, `module:Id-v0`, `envpool:Pong-v5` or `package.module:factory` refers to."""
    module_name, colon, inner = name.rpartition(":")
    if not colon:
        return registered(name)
    if module_name == ENVPOOL:
        return EnvPoolTask(inner)
    module = _import(module_name, name)
    if inner in gym.registry:
        return Registered(gym.registry[inner])
    target: Any = module
    for word in inner.split("."):
        target = getattr(target, word, None)
    if not callable(target):
        offered = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise Misconfigured(
            f"{name!r}: the module {module_name} has no callable {inner!r} and registers no such environment",
            fix=did_you_mean(inner, [*offered, *gym.registry], f"define {inner} in {module_name}"),
        )
    return Factory(target)


def registered(name: str) -> Registered:
    """The entry in Gymnasium's registry, including ale-py's games if it is installed."""
    has_atari = True
    try:
        importlib.import_module("ale_py")
    except ImportError:
        has_atari = False
    if name in gym.registry:
        return Registered(gym.registry[name])
    if not has_atari and (name.startswith("ALE/") or re.search(r"NoFrameskip-v[04]$", name)):
        raise Misconfigured(
            f"the game {name!r} needs ale-py, which is not installed", fix="pip install 'callsheet[atari]'"
        )
    fix = did_you_mean(name, gym.registry, "use an id in Gymnasium's registry, or module:factory")
    raise Misconfigured(f"there is no environment {name!r}", fix=fix)


def explain_missing(name: str, error: BaseException) -> Misconfigured:
    """What to install for an environment that lacks a library."""
    cause = error.__cause__ or error
    library = getattr(cause, "name", None) or next((key for key in _EXTRAS if key in str(error).lower()), "")
    if not library and "mujoco" in str(error).lower():
        library = "mujoco"
    extra = _EXTRAS.get(library)
    hints = re.findall(r"`(pip install [^`]+)`", str(error))
    fix = f"pip install 'callsheet[{extra}]'" if extra else hints[-1] if hints else f"install {library}"
    return Misconfigured(f"{name} needs {library or 'a library'}, which is not installed", fix=fix)


def check_options(name: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise if an environment does not take an option."""
    known = list(known)
    for option in given:
        if option not in known:
            raise Misconfigured(
                f"{name} has no option {option!r}",
                fix=did_you_mean(option, known, f"it takes {', '.join(known) or 'none'}"),
            )


def _import(module: str, name: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name and (module == error.name or module.startswith(f"{error.name}.")):
            raise Misconfigured(
                f"{name!r}: there is no module {error.name!r} to import",
                fix="install it, or add its folder to PYTHONPATH",
            ) from error
        raise explain_missing(name, error) from error
