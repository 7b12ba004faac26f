"""Checkpoints: all that a learner needs to go on, as safetensors and JSON, in sets that are there whole or not at all."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from callsheet.errors import UserError
from callsheet.store import BadSet, SetWriter, Store, StoredSet, all_sets, claim, latest

log = logging.getLogger("callsheet.rl")
FOLDER = "checkpoints"
STATE, POLICY = "state.safetensors", "policy.safetensors"


@dataclass(frozen=True)
class Checkpoint:
    """What was found."""

    name: str
    state: dict[str, np.ndarray]
    info: Mapping[str, Any]


class Checkpoints:
    """The one who writes a run's checkpoints. A predecessor that lives on, unheard, can write none any more."""

    def __init__(self, store: Store, *, keep: int, order: int) -> None:
        self._store = store.sub(FOLDER)
        self._writer: SetWriter = claim(self._store, order=order)
        self._keep = keep
        self.best: tuple[str, float] | None = None
        """Name and evaluation of the best that is kept."""

    def load(self, identity: Mapping[str, Any]) -> Checkpoint | None:
        """The newest of this run: see `newest`."""
        found = newest(self._store, identity)
        if found is not None:
            rated = [
                (one.name, one.info["evaluation"])
                for one in reversed(all_sets(self._store))  # of equals the oldest, as in `save`
                if "evaluation" in one.info
            ]
            self.best = max(rated, key=lambda one: one[1], default=None)
        return found

    def save(
        self,
        name: str,
        state: Mapping[str, np.ndarray],
        policy: Mapping[str, np.ndarray],
        info: Mapping[str, Any],
    ) -> int:
        """Durable when it returns; its bytes. `Fenced` when another learner has taken over."""
        parts = {STATE: _encode(state), POLICY: _encode(policy)}
        with self._writer.write_set(name, info=info) as writing:
            for part, data in parts.items():
                writing.put(part, data)
        rating = info.get("evaluation")
        if rating is not None and (self.best is None or rating > self.best[1]):
            self.best = (name, rating)
        self._writer.keep(self._keep, also=(self.best[0],) if self.best else ())
        return sum(len(data) for data in parts.values())


def newest(folder: Store, identity: Mapping[str, Any]) -> Checkpoint | None:
    """The newest that is whole and was made by a training like this one; a bad one is told loudly and the one before it
    is taken. One of another training is an error."""
    before: int | None = None
    while (found := latest(folder, before=before, skip_bad=True)) is not None:
        told = dict(found.info.get("identity", {}))
        if told != dict(identity):
            other = [key for key in {*told, *identity} if told.get(key) != identity.get(key)]
            raise UserError(
                f"{found.name} in {folder.url} is of another training: "
                + ", ".join(
                    f"{key} was {told.get(key)!r}, is {identity.get(key)!r}" for key in sorted(other)
                ),
                fix="give this training a storage or a name of its own",
            )
        try:
            return Checkpoint(found.name, _arrays(found.read(STATE)), found.info)
        except BadSet as bad:
            log.error("%s; the one before it is taken", bad.message)
            before = found.number
    return None


def find_policy(store: Store, which: str = "best") -> tuple[dict[str, np.ndarray], StoredSet]:
    """The policy of a run's best checkpoint, or of its newest, or of the one with this name."""
    folder = store.sub(FOLDER)
    sets = all_sets(folder)
    if not sets:
        raise UserError(
            f"there is no checkpoint in {folder.url}", fix="train first, or look for the right run"
        )
    if which == "best":
        rated = [one for one in sets if "evaluation" in one.info]
        found = max(rated, key=lambda one: float(one.info["evaluation"])) if rated else sets[0]
    elif which == "newest":
        found = sets[0]
    else:
        named = [one for one in sets if one.name == which]
        if not named:
            raise UserError(
                f"there is no checkpoint {which!r}", fix=f"there are {', '.join(one.name for one in sets)}"
            )
        found = named[0]
    return _arrays(found.read(POLICY)), found


def _encode(arrays: Mapping[str, np.ndarray]) -> bytes:
    from safetensors.numpy import save

    return save({name: np.asarray(array, order="C") for name, array in arrays.items()})


def _arrays(data: bytes) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        return load(data)
    except SafetensorError as error:
        raise BadSet(f"the arrays of a checkpoint cannot be read: {error}") from None
