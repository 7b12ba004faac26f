"""Removes old sets, and parts that dead writers left behind."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING

from callsheet.errors import UserError
from callsheet.store import manifest
from callsheet.store.errors import BadSet
from callsheet.store.manifest import ManifestRecord

if TYPE_CHECKING:
    from callsheet.store.set_writer import SetWriter

_FOLDER = re.compile(r"[^/]+\.(\d+)-[0-9a-f]{8}")
"""A set's folder: name, the writer's fence, and eight hex digits for the attempt."""


def keep(writer: SetWriter, last: int, also: Collection[str]) -> list[str]:
    """Remove manifests first, then their parts, so that no set is ever seen without its parts."""
    if last < 1:
        raise UserError(f"keep(last={last}) would remove the latest set", fix="keep at least one")
    store = writer.store
    record_numbers = manifest.record_numbers(store)
    records = manifest.all_records(store)
    writer.check_fence()  # after listing, so the lists contain nothing of a successor, however long we are suspended from here on
    sets = [r for r in records if isinstance(r, ManifestRecord) and r.kind == "set"]
    removed = [record for record in sets[last:] if record.name not in also]
    kept = {record.number for record in sets if record not in removed}
    oldest_kept = min((record.number for record in sets[:last]), default=0)
    for number in reversed(record_numbers):
        # Claims and damaged manifests are removed with the sets of their time; the newest record stays.
        if number < oldest_kept and number not in kept:
            store.delete(manifest.key(number))
    for record in removed:
        store.delete(*(entry.key for entry in store.list(record.folder)))
    return [record.name for record in removed]


def sweep(writer: SetWriter) -> int:
    """Remove parts that belong to no set and whose writer can no longer finish one; return the number of objects.

    Fences decide this, never a clock: earlier writers were replaced by us, and we know what we are writing. A
    successor's parts stay, so it does not matter if there is one.
    """
    store = writer.store
    entries = store.list()
    active = set(writer.active)  # before the records: a set that is finished in between is listed there
    records = manifest.all_records(store)
    left = 0
    if not any(
        isinstance(record, BadSet) for record in records
    ):  # a damaged one may be the one that names them
        named = {record.folder for record in records if isinstance(record, ManifestRecord)} | active
        keys = [entry.key for entry in entries if _is_left(entry.key, named, writer.fence)]
        store.delete(*keys)
        left = len(keys)
    return left + store.sweep(_FOLDER)


def _is_left(key: str, named: Collection[str], fence: int) -> bool:
    folder, _, part = key.partition("/")
    match = _FOLDER.fullmatch(folder)
    return bool(match and part and int(match[1]) <= fence and folder not in named)
