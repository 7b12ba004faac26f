"""Cuts episodes into sequences of equal length, for recurrent learners."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from callsheet.errors import UserError


def cut(
    episode: Mapping[str, NDArray[np.generic]], length: int, *, burn_in: int = 0, stride: int | None = None
) -> dict[str, NDArray[np.generic]]:
    """Cut an episode into sequences for `insert_many`: each array becomes `[sequences, burn_in + length, ...]`.

    Sequence i trains on steps i x stride to i x stride + length; the `burn_in` steps before them only warm up the
    recurrent state. With the default stride, `length`, every step is trained on once; with a smaller one sequences
    overlap. Steps before the first and after the last are filled with zeros. Two boolean arrays are added: `valid` marks
    real steps, `learn` marks steps to train on.
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
            fix="give all arrays the same number of steps, and name none `valid` or `learn`",
        )
    steps = lengths[0]
    starts = np.arange(0, max(1, steps - (length - stride)), stride)
    at = starts[:, None] + np.arange(-burn_in, length)
    valid = (at >= 0) & (at < steps)
    sequences: dict[str, NDArray[np.generic]] = {}
    for name, array in episode.items():
        sequences[name] = np.asarray(array)[at.clip(0, steps - 1)]
        sequences[name][~valid] = 0
    sequences["valid"] = valid
    sequences["learn"] = valid & (np.arange(-burn_in, length) >= 0)
    return sequences
