"""The spaces of an environment as plain data, for learners and checkpoints that do not have the environment."""

from __future__ import annotations

from typing import Literal

import msgspec

Family = Literal["classic", "atari", "mujoco", "other"]
"""Kinds of environments with their own defaults."""


class Array(msgspec.Struct, frozen=True):
    """One named array of an observation."""

    dtype: str
    """`float32` or `uint8`."""
    shape: tuple[int, ...]
    low: float | None = None
    """The smallest possible value; None if unbounded."""
    high: float | None = None


class Discrete(msgspec.Struct, frozen=True, tag="discrete"):
    """One of `n` actions, numbered from 0."""

    n: int


class Continuous(msgspec.Struct, frozen=True, tag="continuous"):
    """A vector of numbers, each within its own bounds."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    @property
    def size(self) -> int:
        return len(self.low)


class Spaces(msgspec.Struct, frozen=True):
    """Observations and actions of an environment."""

    observations: dict[str, Array]
    action: Discrete | Continuous
    masks: bool = False
    """Whether each observation comes with a mask of allowed actions."""
    family: Family = "other"

    def to_json(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, data: bytes | str) -> Spaces:
        return msgspec.json.decode(data, type=cls)
