"""The algorithms by their names. Each is a package of its own with the same files; nothing heavy is imported here.

A user's own is a class, named `module:Class`: a learner that says what it wants (docs/how-to/own-algorithm.md).
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any, Literal, NamedTuple

import msgspec

from callsheet.errors import Misconfigured, did_you_mean
from callsheet.rl.algorithms.learner import Learner
from callsheet.rl.settings import Training, convert
from callsheet.rl.spaces import Spaces


class Algorithm(NamedTuple):
    """What distinguishes an algorithm for those who run it."""

    name: str
    learner: str
    """Name of its learner's class."""
    data: Literal["rollouts", "replay"]
    """Whether actors send rollouts to the learner or transitions to a replay."""
    in_step: bool = False
    """Whether actors wait for each other, so that a seed gives the same weights every time."""
    own: Any = None
    """The class of an algorithm that is not one of ours."""

    @property
    def summary(self) -> str:
        """Its first line."""
        told = self.own or import_module(f"callsheet.rl.algorithms.{self.name}")
        return str(told.__doc__).split("\n", 1)[0]

    @property
    def config(self) -> type[msgspec.Struct]:
        """Its settings."""
        where = self.own or import_module(f"callsheet.rl.algorithms.{self.name}.config")
        found: type[msgspec.Struct] = where.Config
        return found

    def settings(self, training: Training) -> Any:
        """The family's defaults with what the file says."""
        values = training.settings
        if self.own is not None:
            usual = msgspec.to_builtins(self.config())
        else:
            module = import_module(f"callsheet.rl.algorithms.{self.name}.config")
            usual = msgspec.to_builtins(module.defaults(training.family))
        merged = usual | values
        if isinstance(values.get("network"), dict):
            merged["network"] = usual["network"] | values["network"]
        return convert(merged, self.config, self.name)

    def make_learner(self, spaces: Spaces, training: Training, device: str) -> Learner:
        """Its learner; those of ours import PyTorch."""
        kind = self.own or getattr(
            import_module(f"callsheet.rl.algorithms.{self.name}.learner"), self.learner
        )
        learner: Learner = kind(spaces, self.settings(training), seed=training.seed, device=device)
        return learner


ALGORITHMS = {
    one.name: one
    for one in (
        Algorithm("impala", "Impala", "rollouts"),
        Algorithm("ppo", "PPO", "rollouts", in_step=True),
        Algorithm("dqn", "DQN", "replay"),
        Algorithm("sac", "SAC", "replay"),
    )
}


def algorithm(name: str) -> Algorithm:
    """The algorithm of this name, or the one that a user's class is."""
    if ":" in name:
        return _own(name)
    found = ALGORITHMS.get(name)
    if found is None:
        fix = did_you_mean(name, ALGORITHMS, f"there are {', '.join(ALGORITHMS)}")
        raise Misconfigured(f"there is no algorithm {name!r}", fix=fix)
    return found


_NEEDS = ("environments", "rollout", "network")
"""Settings without which no actor can play."""


def _own(name: str) -> Algorithm:
    module, _, word = name.rpartition(":")
    folder = os.getcwd()
    if folder not in sys.path:  # a command that is installed does not look there by itself
        sys.path.insert(0, folder)
    try:
        kind = getattr(import_module(module), word)
    except ModuleNotFoundError as error:
        if error.name != module.split(".", 1)[0]:
            raise
        raise Misconfigured(
            f"{name!r}: there is no module {module!r}", fix="run the command in the folder that has it"
        ) from None
    except AttributeError:
        raise Misconfigured(
            f"{name!r}: {module} has no class {word!r}", fix="give the class of the learner"
        ) from None
    config = getattr(kind, "Config", None)
    known = [one.name for one in msgspec.structs.fields(config)] if isinstance(config, type) else []
    missing = [one for one in _NEEDS if one not in known]
    if missing:
        raise Misconfigured(
            f"{name} has no setting {missing[0]!r}, which actors need",
            fix=f"let its Config be a callsheet.rl.settings.Settings with {', '.join(_NEEDS)}",
        )
    return Algorithm(name, word, "rollouts", bool(getattr(kind, "in_step", False)), kind)
