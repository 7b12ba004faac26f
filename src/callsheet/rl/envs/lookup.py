"""From the name of an environment to what makes it, or to a sentence that says what is missing or misspelled."""

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
"""Where environments come from that neither crash nor hang; they need no process of their own."""
_EXTRAS: Final = {"ale_py": "atari", "mujoco": "mujoco", "pygame": "video"}


@dataclass(frozen=True)
class Registered:
    """An environment that Gymnasium knows by its id."""

    spec: gym.envs.registration.EnvSpec

    @property
    def entry(self) -> str:
        """Where its class stands, `module:name`."""
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
class Pool:
    """An environment of EnvPool's, by its task id."""

    task: str


@dataclass(frozen=True)
class Factory:
    """A callable of the user's."""

    call: Callable[..., Any]


def family_of(name: str) -> Family:
    """Whose defaults suit an environment, without making it or importing a module of the user's."""
    return "other" if ":" in name else registered(name).family


def is_trusted(name: str) -> bool:
    """Whether it may live in this process. A module of the user's is not even imported to find that out."""
    module, colon, _ = name.rpartition(":")
    if colon:
        return module == ENVPOOL or f"{module}.".startswith(TRUSTED)
    return registered(name).entry.startswith(TRUSTED)


def is_native(name: str) -> bool:
    """Whether it is a vector with threads of its own, which gains nothing from several processes."""
    module, colon, _ = name.rpartition(":")
    if colon:
        return module == ENVPOOL
    found = registered(name)
    return found.entry == ATARI or found.spec.vector_entry_point is not None


def to_carry(name: str) -> str:
    """An entry of Gymnasium's list as JSON, for another process, which need not have registered it."""
    if ":" in name:
        return ""
    spec = registered(name).spec
    try:
        return spec.to_json()
    except (TypeError, ValueError) as error:
        raise Misconfigured(
            f"{name} cannot live in a process of its own, because it is registered with objects of this one: {error}",
            fix="register it with entry_point='module:name', or use isolate=False",
        ) from error


def find(name: str) -> Registered | Pool | Factory:
    """What `CartPole-v1`, `module:Id-v0`, `envpool:Pong-v5` or `package.module:factory` stands for."""
    module_name, colon, inner = name.rpartition(":")
    if not colon:
        return registered(name)
    if module_name == ENVPOOL:
        return Pool(inner)
    module = _import(module_name, name)
    if inner in gym.registry:
        return Registered(gym.registry[inner])
    target: Any = module
    for word in inner.split("."):
        target = getattr(target, word, None)
    if not callable(target):
        offered = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise Misconfigured(
            f"{name!r}: the module {module_name} has nothing to call {inner!r}, and registers no such environment",
            fix=did_you_mean(inner, [*offered, *gym.registry], f"define {inner} in {module_name}"),
        )
    return Factory(target)


def registered(name: str) -> Registered:
    """The entry of Gymnasium's list, with the games of ale-py where that is installed."""
    games = True
    try:
        importlib.import_module("ale_py")
    except ImportError:
        games = False
    if name in gym.registry:
        return Registered(gym.registry[name])
    if not games and (name.startswith("ALE/") or re.search(r"NoFrameskip-v[04]$", name)):
        raise Misconfigured(
            f"the game {name!r} needs ale-py, which is not installed", fix="pip install 'callsheet[atari]'"
        )
    fix = did_you_mean(name, gym.registry, "write an id that Gymnasium lists, or module:factory")
    raise Misconfigured(f"there is no environment called {name!r}", fix=fix)


def explain_missing(name: str, error: BaseException) -> Misconfigured:
    """What to install, for an environment that found one of its libraries missing."""
    cause = error.__cause__ or error
    library = getattr(cause, "name", None) or next((key for key in _EXTRAS if key in str(error).lower()), "")
    if not library and "mujoco" in str(error).lower():
        library = "mujoco"
    extra = _EXTRAS.get(library)
    said = re.findall(r"`(pip install [^`]+)`", str(error))
    fix = f"pip install 'callsheet[{extra}]'" if extra else said[-1] if said else f"install {library}"
    return Misconfigured(f"{name} needs {library or 'a library'}, which is not installed", fix=fix)


def check_options(name: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse an option that an environment does not take."""
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
