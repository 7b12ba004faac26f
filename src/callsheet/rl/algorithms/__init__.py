"""The algorithms by name, one folder each: `config.py` (no PyTorch) and `learner.py`.

Your own is a class, named `module:Class`: a learner with a `Config` (docs/how-to/own-algorithm.md).
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any, Literal, NamedTuple

import msgspec

from callsheet.errors import Misconfigured, did_you_mean
from callsheet.rl.algorithms.learner import Learner
from callsheet.rl.settings import AlgorithmSettings, RolloutSettings, Training, convert
from callsheet.rl.spaces import Spaces


class Algorithm(NamedTuple):
    """What roles and recipes need to know about an algorithm."""

    name: str
    learner: str
    """Name of its learner's class."""
    data: Literal["rollouts", "replay"]
    """Whether actors send rollouts to the learner or transitions to a replay."""
    in_step: bool = False
    """Whether the learner waits for all actors before each update, so that a seed always gives the same weights."""
    own: Any = None
    """The class, if it is the user's own."""

    @property
    def summary(self) -> str:
        """The first line of its documentation."""
        documented = self.own or import_module(f"callsheet.rl.algorithms.{self.name}")
        return str(documented.__doc__).split("\n", 1)[0]

    @property
    def config(self) -> type[AlgorithmSettings]:
        """The class of its settings."""
        home = self.own or import_module(f"callsheet.rl.algorithms.{self.name}.config")
        config: type[AlgorithmSettings] = home.Config
        return config

    def settings(self, training: Training) -> AlgorithmSettings:
        """The settings of a training: the defaults of its environment's family, with the given values."""
        given = training.settings
        if self.own is not None:
            defaults = msgspec.to_builtins(self.config())
        else:
            module = import_module(f"callsheet.rl.algorithms.{self.name}.config")
            defaults = msgspec.to_builtins(module.defaults(training.family))
        merged = defaults | given
        if isinstance(given.get("network"), dict):
            merged["network"] = defaults["network"] | given["network"]
        return convert(merged, self.config, self.name)

    def make_learner(self, spaces: Spaces, training: Training, device: str) -> Learner:
        """Make its learner. Ours import PyTorch."""
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
    """Find an algorithm by its name or by the user's `module:Class`."""
    if ":" in name:
        return _users_own(name)
    if name not in ALGORITHMS:
        fix = did_you_mean(name, ALGORITHMS, f"choose one of {', '.join(ALGORITHMS)}")
        raise Misconfigured(f"there is no algorithm {name!r}", fix=fix)
    return ALGORITHMS[name]


def _users_own(name: str) -> Algorithm:
    module, _, class_name = name.rpartition(":")
    folder = os.getcwd()
    if folder not in sys.path:  # an installed command does not look there
        sys.path.insert(0, folder)
    try:
        kind = getattr(import_module(module), class_name)
    except ModuleNotFoundError as error:
        if error.name != module.split(".", 1)[0]:
            raise
        raise Misconfigured(
            f"{name!r}: there is no module {module!r}", fix="run the command in the module's folder"
        ) from None
    except AttributeError:
        raise Misconfigured(
            f"{name!r}: {module} has no class {class_name!r}", fix="name the learner's class"
        ) from None
    in_step = bool(getattr(kind, "in_step", False))
    base = AlgorithmSettings if in_step else RolloutSettings
    config = getattr(kind, "Config", None)
    if not (isinstance(config, type) and issubclass(config, base)):
        raise Misconfigured(
            f"{name} has no Config that derives from {base.__name__}",
            fix=f"let its class attribute Config be a subclass of callsheet.rl.settings.{base.__name__}",
        )
    return Algorithm(name, class_name, "rollouts", in_step, kind)
