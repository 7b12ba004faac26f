"""The algorithms by their names. Each is a package of its own with the same files; nothing heavy is imported here."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from typing import Any, Literal, NamedTuple

import msgspec

from callsheet.errors import UserError
from callsheet.rl.learner import Learner
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

    @property
    def summary(self) -> str:
        """Its first line."""
        return str(import_module(f"callsheet.rl.{self.name}").__doc__).split("\n", 1)[0]

    @property
    def config(self) -> type[msgspec.Struct]:
        """Its settings."""
        found: type[msgspec.Struct] = import_module(f"callsheet.rl.{self.name}.config").Config
        return found

    def settings(self, training: Training) -> Any:
        """The family's defaults with what the file says."""
        values = training.settings
        usual = msgspec.to_builtins(
            import_module(f"callsheet.rl.{self.name}.config").defaults(training.family)
        )
        merged = usual | values
        if isinstance(values.get("network"), dict):
            merged["network"] = usual["network"] | values["network"]
        return convert(merged, self.config, self.name)

    def make_learner(self, spaces: Spaces, training: Training, device: str) -> Learner:
        """Its learner; imports PyTorch."""
        kind = getattr(import_module(f"callsheet.rl.{self.name}.learner"), self.learner)
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
    """The algorithm of this name."""
    found = ALGORITHMS.get(name)
    if found is None:
        near = get_close_matches(name, ALGORITHMS, 1)
        known = ", ".join(ALGORITHMS)
        raise UserError(
            f"there is no algorithm {name!r}",
            fix=f"did you mean {near[0]!r}?" if near else f"there are {known}",
        )
    return found
