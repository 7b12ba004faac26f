"""Checkpoints: everything a learner needs to continue, as safetensors and JSON, written atomically."""

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
    """A stored checkpoint."""

    name: str
    state: dict[str, np.ndarray]
    info: Mapping[str, Any]


class Checkpoints:
    """Writes a run's checkpoints. A predecessor that is still alive is fenced off and can write no more."""

    def __init__(self, store: Store, *, keep: int, order: int) -> None:
        self._store = store.sub(FOLDER)
        self._writer: SetWriter = claim(self._store, order=order)
        self._keep = keep
        self.best: tuple[str, float] | None = None
        """Name and evaluation of the best checkpoint that is kept."""

    def load(self, identity: Mapping[str, Any]) -> Checkpoint | None:
        """This run's newest checkpoint: see `newest`."""
        checkpoint = newest(self._store, identity)
        if checkpoint is not None:
            rated = [
                (one.name, one.info["evaluation"])
                for one in reversed(all_sets(self._store))  # the oldest of equals, as in `save`
                if "evaluation" in one.info
            ]
            self.best = max(rated, key=lambda one: one[1], default=None)
        return checkpoint

    def save(
        self,
        name: str,
        state: Mapping[str, np.ndarray],
        policy: Mapping[str, np.ndarray],
        info: Mapping[str, Any],
    ) -> int:
        """Write a checkpoint; returns its size in bytes once it is durable. Raises `Fenced` if another learner has taken over."""
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
    """The newest valid checkpoint. A damaged one is logged and skipped; one of a different training is an error."""
    before: int | None = None
    while (candidate := latest(folder, before=before, skip_bad=True)) is not None:
        stored = dict(candidate.info.get("identity", {}))
        if stored != dict(identity):
            different = [key for key in {*stored, *identity} if stored.get(key) != identity.get(key)]
            raise UserError(
                f"{candidate.name} in {folder.url} belongs to a different training: "
                + ", ".join(
                    f"{key} was {stored.get(key)!r}, is {identity.get(key)!r}" for key in sorted(different)
                ),
                fix="give this training another storage or name",
            )
        try:
            return Checkpoint(candidate.name, _arrays(candidate.read(STATE)), candidate.info)
        except BadSet as bad:
            log.error("%s; using the one before it", bad.message)
            before = candidate.number
    return None


def find_policy(store: Store, which: str = "best") -> tuple[dict[str, np.ndarray], StoredSet]:
    """The policy of a run's best or newest checkpoint, or of the one with this name."""
    folder = store.sub(FOLDER)
    sets = all_sets(folder)
    if not sets:
        raise UserError(f"there is no checkpoint in {folder.url}", fix="train first, or name another run")
    if which == "best":
        rated = [one for one in sets if "evaluation" in one.info]
        chosen = max(rated, key=lambda one: float(one.info["evaluation"])) if rated else sets[0]
    elif which == "newest":
        chosen = sets[0]
    else:
        named = [one for one in sets if one.name == which]
        if not named:
            raise UserError(
                f"there is no checkpoint {which!r}",
                fix=f"choose one of {', '.join(one.name for one in sets)}",
            )
        chosen = named[0]
    return _arrays(chosen.read(POLICY)), chosen


def _encode(arrays: Mapping[str, np.ndarray]) -> bytes:
    from safetensors.numpy import save

    return save({name: np.asarray(array, order="C") for name, array in arrays.items()})


def _arrays(data: bytes) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        return load(data)
    except SafetensorError as error:
        raise BadSet(f"cannot read the arrays of a checkpoint: {error}") from None
