"""Cuts episodes into sequences of one length, for learners with a memory."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from callsheet.errors import UserError


def cut(
    episode: Mapping[str, NDArray[np.generic]], length: int, *, burn_in: int = 0, stride: int | None = None
) -> dict[str, NDArray[np.generic]]:
    """Sequences of an episode, as `insert_many` takes them: each array `[sequences, burn_in + length, ...]`.

    Sequence number i is there to learn from the steps i x stride to i x stride + length; before them come `burn_in`
    steps that only warm the memory up. With the usual stride, which is `length`, every step is learned from once; a
    smaller one makes sequences overlap. What lies before the first step and behind the last is filled with zeros.
    Two arrays of truth values are added: `valid` says where there is a step, `learn` where one is to be learned from.
    """
    stride = length if stride is None else stride
    if length < 1 or burn_in < 0 or not 1 <= stride <= length:
        raise UserError(
            f"sequences of {length} steps with {burn_in} before them, every {stride} steps",
            fix="length is at least 1, burn_in at least 0, and stride from 1 to length",
        )
    lengths = sorted({len(array) for array in episode.values()})
    taken = {"valid", "learn"} & set(episode)
    if len(lengths) != 1 or lengths[0] < 1 or taken:
        raise UserError(
            f"the episode already has an array {taken.pop()!r}"
            if taken
            else f"the arrays have {lengths} steps",
            fix="give each array as many steps, and call none of them `valid` or `learn`",
        )
    steps = lengths[0]
    starts = np.arange(0, max(1, steps - (length - stride)), stride)
    at = starts[:, None] + np.arange(-burn_in, length)
    valid = (at >= 0) & (at < steps)
    found: dict[str, NDArray[np.generic]] = {}
    for name, array in episode.items():
        found[name] = np.asarray(array)[at.clip(0, steps - 1)]
        found[name][~valid] = 0
    found["valid"] = valid
    found["learn"] = valid & (np.arange(-burn_in, length) >= 0)
    return found
