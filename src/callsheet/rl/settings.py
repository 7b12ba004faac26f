"""The settings of a training: one JSON file that all its roles read and that a person may edit."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from callsheet import contract
from callsheet.errors import Misconfigured, did_you_mean
from callsheet.rl.nets.network import Network
from callsheet.rl.spaces import Family

Struct = TypeVar("Struct", bound=msgspec.Struct)


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A group of settings, each documented below its field."""


class AlgorithmSettings(Settings, frozen=True, kw_only=True):
    """What every algorithm has: its actors step these environments with this network."""

    environments: int = 8
    """Environments per actor."""
    rollout: int = 20
    """Steps per environment in each rollout."""
    network: Network = Network()
    """The network."""


class RolloutSettings(AlgorithmSettings, frozen=True, kw_only=True):
    """Algorithms that learn from rollouts as they arrive: actors do not wait for each other."""

    batch: int = 1
    """Rollouts per update."""
    max_policy_lag: int | None = None
    """Ignore rollouts of a policy that is more than this many updates old; null: use them all."""
    ahead: int = 1
    """Rollouts an actor may have in flight to the learner. More hide latency, but their policy is older."""


class ReplaySettings(AlgorithmSettings, frozen=True, kw_only=True):
    """Algorithms that learn from transitions sampled from a replay."""

    rollout: int = 16
    """Steps per environment before an actor sends its transitions and checks for a newer policy."""
    batch: int = 128
    """Transitions per update."""
    updates_per_step: float = 1.0
    """Updates per environment step. Whichever side is ahead, actors or learner, waits."""
    capacity: int = 1_000_000
    """Transitions in the replay; when it is full, the oldest are removed."""
    memory: int = 6_000_000_000
    """Maximum size of the replay in bytes. Large observations such as images may reach it before `capacity`."""
    warmup: int = 1_000
    """Transitions to collect with random actions before learning starts."""
    n_step: int = 1
    """Rewards summed into one transition before bootstrapping from the value estimate."""
    gamma: float = 0.99
    """Discount factor."""
    learning_rate: float = 1e-3
    """Adam's learning rate."""
    publish_every: int = 10
    """Updates between two versions of the policy that actors receive."""

    def epsilons(self, *, actor: int, actors: int) -> NDArray[np.float32] | None:
        """The share of random actions in each environment of an actor; None if the policy explores itself."""
        return None


class PrioritizedReplaySettings(ReplaySettings, frozen=True, kw_only=True):
    """Algorithms that sample by priority."""

    alpha: float = 0.6
    """Priority exponent: 0 samples uniformly, 1 in proportion to priority."""
    beta: float = 0.4
    """Initial importance-sampling exponent; it rises linearly to 1 by the end of the training."""


class Stop(Settings, frozen=True, kw_only=True):
    """When a training is done: at the first condition met. Without any, it trains until you stop it."""

    steps: int | None = None
    """Environment steps, all actors together."""
    seconds: float | None = None
    """Training time in seconds, over all attempts."""
    goal: float | None = None
    """Mean return of the newest evaluation."""
    sampled: float | None = None
    """Mean return of the last 20 episodes that actors played while exploring."""


class Evaluation(Settings, frozen=True, kw_only=True):
    """How the evaluator works."""

    every: float = 5.0
    """Seconds between evaluations. A policy that has not changed is not evaluated again."""
    episodes: int = 20
    """Episodes per evaluation, with seeds that actors never use."""
    videos: int = 0
    """Episodes of each evaluation to record as videos."""
    longest: int = 27_000
    """Maximum steps per episode, for environments without a time limit (an Atari game has at most 27,000)."""


class Checkpoints(Settings, frozen=True, kw_only=True):
    """How progress is saved."""

    every: float = 60.0
    """Seconds between checkpoints. One is also written at the end and on SIGTERM."""
    keep: int = 3
    """How many of the newest checkpoints to keep. The one with the best evaluation is kept too."""


class Training(Settings, frozen=True, kw_only=True):
    """The whole file."""

    algorithm: str
    """impala, ppo, dqn, sac, or your own `module:Class`."""
    env: str
    """A Gymnasium id, or `package.module:factory`."""
    options: dict[str, Any] = {}
    """Arguments of the environment."""
    family: Family = "other"
    """Whose defaults apply to settings that are not given: classic, atari, mujoco or other."""
    actors: int = 1
    """Number of actors. PPO waits for all of them before each update."""
    inference: Literal["local", "central"] = "local"
    """Who chooses actions: each actor, or one policy server for all of them."""
    rewards: Literal["auto", "true", "sign"] = "auto"
    """Learn from true rewards or only from their sign. "auto": sign for Atari, true otherwise. Reported returns always use
    true rewards."""
    seed: int = 0
    """Random seed."""
    stop: Stop = Stop()
    evaluation: Evaluation = Evaluation()
    checkpoints: Checkpoints = Checkpoints()
    resume: str = ""
    """URL of another run's results. Without checkpoints of its own, the training starts from that run's newest one."""
    settings: dict[str, Any] = {}
    """The algorithm's settings. Those not given use the defaults of the environment's family."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "settings", self._with_current_names())

    def _with_current_names(self) -> dict[str, Any]:
        """The settings with old spellings replaced, so that files and checkpoints of earlier versions still work."""
        settings = self.settings
        if ":" not in self.algorithm:  # a user's own class has its own names
            settings = {contract.RENAMED.get(name, name): value for name, value in settings.items()}
        if isinstance(network := settings.get("network"), dict):
            network = {contract.RENAMED.get(name, name): value for name, value in network.items()}
            settings = settings | {"network": network}
        return settings

    @property
    def clip_rewards(self) -> bool:
        """Whether learners see only the sign of each reward."""
        return self.rewards == "sign" or (self.rewards == "auto" and self.family == "atari")

    def encode(self) -> str:
        """As JSON text."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2).decode() + "\n"


def read(path: str | Path) -> Training:
    """Read and check a training's file."""
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=Training)
    except OSError as error:
        raise Misconfigured(
            f"cannot read the training's file {path}: {error.strerror}",
            fix="`callsheet train ... --render` writes an experiment that contains one",
        ) from None
    except msgspec.MsgspecError as error:
        raise Misconfigured(
            f"{path} is not a valid training: {error}", fix="fix it, or render the experiment again"
        ) from None


def convert(values: dict[str, Any], kind: type[Struct], what: str) -> Struct:
    """Turn plain values into settings. An error names the field."""
    _check_names(values, kind, what)
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        message, _, place = str(error).rstrip("`").partition(" - at `$.")
        where = f"the setting {place!r} of {what}" if place else what
        raise Misconfigured(f"{where}: {message}", fix="see `callsheet train ALGORITHM --settings`") from None


def _check_names(values: dict[str, Any], kind: type[msgspec.Struct], what: str, prefix: str = "") -> None:
    """Raise if a setting does not exist, in nested groups too."""
    fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
    for name, value in values.items():
        if name not in fields:
            known = [prefix + field for field in fields]
            fix = did_you_mean(prefix + name, known, f"it has {', '.join(fields)}")
            raise Misconfigured(f"{what} has no setting {prefix + name!r}", fix=fix)
        inner = fields[name]
        if isinstance(value, dict) and isinstance(inner, type) and issubclass(inner, msgspec.Struct):
            _check_names(value, inner, what, f"{prefix}{name}.")
