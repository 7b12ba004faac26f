"""What an environment looks like from outside, as plain data: a learner is told by a file and makes no environment."""

from __future__ import annotations

from typing import Literal

import msgspec

Family = Literal["classic", "atari", "mujoco", "other"]
"""Kinds of environments that get defaults of their own."""


class Array(msgspec.Struct, frozen=True):
    """One named part of an observation."""

    dtype: str
    """As NumPy writes it: `float32` or `uint8`."""
    shape: tuple[int, ...]
    low: float | None = None
    """The smallest value anywhere in it; None when there is no limit."""
    high: float | None = None


class Discrete(msgspec.Struct, frozen=True, tag="discrete"):
    """One of `n` actions, counted from 0."""

    n: int


class Continuous(msgspec.Struct, frozen=True, tag="continuous"):
    """A vector of numbers, each between its own limits."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    @property
    def size(self) -> int:
        return len(self.low)


class Spaces(msgspec.Struct, frozen=True):
    """What goes into an environment and what comes out of it."""

    observations: dict[str, Array]
    action: Discrete | Continuous
    masks: bool = False
    """Whether each observation comes with a list of the actions that are allowed."""
    family: Family = "other"

    def to_json(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, data: bytes | str) -> Spaces:
        return msgspec.json.decode(data, type=cls)
