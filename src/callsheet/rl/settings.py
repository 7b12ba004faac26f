"""What a training is told, by one file that a person may edit: what all algorithms share, and the algorithm's own part."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

from callsheet import contract
from callsheet.errors import Misconfigured, did_you_mean
from callsheet.rl.spaces import Family


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A group of settings; each says under its field what it does."""


class Stop(Settings, frozen=True, kw_only=True):
    """When a training has ended well. Whatever comes first; nothing said: never."""

    steps: int | None = None
    """Environment steps of all actors together."""
    seconds: float | None = None
    """Time spent training, over all attempts."""
    goal: float | None = None
    """Mean return of the evaluator's newest evaluation."""
    sampled: float | None = None
    """Mean return of the last 20 episodes that actors played while exploring."""


class Evaluation(Settings, frozen=True, kw_only=True):
    """What the evaluator does beside the training."""

    every: float = 5.0
    """Seconds from the end of an evaluation to the next one; a policy that has not changed is not evaluated again."""
    episodes: int = 20
    """Episodes of one evaluation, with seeds that actors never use."""
    videos: int = 0
    """Episodes of each evaluation that are kept as videos."""
    longest: int = 27_000
    """Steps after which an episode is cut short, for environments that have no limit of time of their own; so many has a
    game of Atari at most."""


class Checkpoints(Settings, frozen=True, kw_only=True):
    """What is kept so that the next attempt goes on."""

    every: float = 60.0
    """Seconds between two; one is written at the end and on SIGTERM too."""
    keep: int = 3
    """The newest so many stay; the one with the best evaluation stays as well."""


class Training(Settings, frozen=True, kw_only=True):
    """The whole file."""

    algorithm: str
    """impala, ppo, dqn or sac."""
    env: str
    """A Gymnasium id, or `package.module:factory`."""
    options: dict[str, Any] = {}
    """Passed to the environment."""
    family: Family = "other"
    """Whose defaults the settings below have that are not said: classic, atari, mujoco or other."""
    actors: int = 1
    """How many actors there are: algorithms that go in step wait for all of them."""
    inference: Literal["local", "central"] = "local"
    """Where actions are chosen: by each actor, or by a policy server for all of them."""
    rewards: Literal["auto", "true", "sign"] = "auto"
    """What is learned from: the true rewards, or only whether they are above or below 0. "auto": signs for Atari, as is
    usual there, else true ones. Returns that are told are always those of true rewards."""
    seed: int = 0
    """Of everything that is drawn by chance: weights, environments, actions, the order of samples."""
    stop: Stop = Stop()
    evaluation: Evaluation = Evaluation()
    checkpoints: Checkpoints = Checkpoints()
    resume: str = ""
    """Results of another run, as a URL: a run without checkpoints of its own begins with the newest of that one."""
    settings: dict[str, Any] = {}
    """The algorithm's own; those that are not said have the defaults of the family."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "settings", self._renamed())

    def _renamed(self) -> dict[str, Any]:
        """The settings with old spellings replaced, so that files and checkpoints of earlier versions still work."""
        settings = self.settings
        if ":" not in self.algorithm:  # the names in a user's own class are their own
            settings = {contract.RENAMED.get(name, name): value for name, value in settings.items()}
        if isinstance(network := settings.get("network"), dict):
            renamed = {contract.RENAMED.get(name, name): value for name, value in network.items()}
            settings = settings | {"network": renamed}
        return settings

    @property
    def signs(self) -> bool:
        """Whether only the signs of rewards are learned from."""
        return self.rewards == "sign" or (self.rewards == "auto" and self.family == "atari")

    def encode(self) -> str:
        """As the text of a file."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2).decode() + "\n"


def read(path: str | Path) -> Training:
    """A training's file, checked."""
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=Training)
    except OSError as error:
        raise Misconfigured(
            f"the training's file {path} cannot be read: {error.strerror}",
            fix="`callsheet train ... --render` writes an experiment that has one",
        ) from None
    except msgspec.MsgspecError as error:
        raise Misconfigured(f"{path} is no training: {error}", fix="mend it, or render it anew") from None


def convert(values: dict[str, Any], kind: type[msgspec.Struct], what: str) -> Any:
    """Values as a group of settings; a mistake names the field."""
    _check_names(values, kind, what)
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        told, _, place = str(error).rstrip("`").partition(" - at `$.")
        where = f"the setting {place!r} of {what}" if place else what
        raise Misconfigured(f"{where}: {told}", fix="see `callsheet train ALGORITHM --settings`") from None


def _check_names(values: dict[str, Any], kind: type[msgspec.Struct], what: str, above: str = "") -> None:
    """Refuse names that are not there, in groups within the group too."""
    fields = {one.name: one.type for one in msgspec.structs.fields(kind)}
    for name, value in values.items():
        if name not in fields:
            known = [above + field for field in fields]
            fix = did_you_mean(above + name, known, f"it has {', '.join(fields)}")
            raise Misconfigured(f"{what} has no setting {above + name!r}", fix=fix)
        inner = fields[name]
        if isinstance(value, dict) and isinstance(inner, type) and issubclass(inner, msgspec.Struct):
            _check_names(value, inner, what, f"{above}{name}.")
