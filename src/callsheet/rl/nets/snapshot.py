"""Snapshots are named arrays; one that belongs to another policy is told by name, before anything is changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from callsheet.errors import UserError
from callsheet.rl.nets.layout import Parameter

Snapshot = Mapping[str, NDArray[np.generic]]

_SHOWN = 3


class ForeignSnapshot(UserError):
    """The arrays are not those of this policy."""


def check(snapshot: Snapshot, parameters: Iterable[Parameter]) -> None:
    """Refuse a snapshot in which parameters are missing or have another shape."""
    wrong = []
    for one in parameters:
        found = snapshot.get(one.name)
        if found is None:
            wrong.append(f"{one.name} is missing")
        elif found.shape != one.shape:
            wrong.append(f"{one.name} is {list(found.shape)}, not {list(one.shape)}")
    if wrong:
        more = f", and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        raise ForeignSnapshot(
            f"these are the parameters of another policy: {'; '.join(wrong[:_SHOWN])}{more}",
            fix="use the same environment and the same network as when they were made",
        )
