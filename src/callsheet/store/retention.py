"""Which sets stay: removing old ones, and the parts that dead writers left behind."""

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
"""Where parts are: name, fence of the writer, and eight letters for the attempt."""


def keep(writer: SetWriter, last: int, also: Collection[str]) -> list[str]:
    """Remove manifests first, then their parts: a set is never seen without them."""
    if last < 1:
        raise UserError(f"keep(last={last}) would remove the latest set", fix="keep at least one")
    store = writer.store
    record_numbers = manifest.record_numbers(store)
    records = manifest.all_records(store)
    writer.check_fence()  # after the lists: so they have nothing of a successor, however long we are stopped from here on
    sets = [r for r in records if isinstance(r, ManifestRecord) and r.kind == "set"]
    removed = [record for record in sets[last:] if record.name not in also]
    kept = {record.number for record in sets if record not in removed}
    oldest_kept = min((record.number for record in sets[:last]), default=0)
    for number in reversed(record_numbers):
        # Claims and bad manifests go with the sets of their time; the newest record never goes.
        if number < oldest_kept and number not in kept:
            store.delete(manifest.key(number))
    for record in removed:
        store.delete(*(entry.key for entry in store.list(record.folder)))
    return [record.name for record in removed]


def sweep(writer: SetWriter) -> int:
    """Remove parts of no set whose writer can finish none any more: how many objects.

    That is told by fences, never by a clock: earlier writers were replaced by us, and we know what we are writing. A
    successor's parts stay, so it does not matter if there is one."""
    store = writer.store
    entries = store.list()
    active = set(writer.active)  # before the records: a set that is finished in between is among those
    records = manifest.all_records(store)
    left = 0
    if not any(isinstance(record, BadSet) for record in records):  # a bad one may be the one that names them
        named = {record.folder for record in records if isinstance(record, ManifestRecord)} | active
        keys = [entry.key for entry in entries if _is_left(entry.key, named, writer.fence)]
        store.delete(*keys)
        left = len(keys)
    return left + store.sweep(_FOLDER)


def _is_left(key: str, named: Collection[str], fence: int) -> bool:
    folder, _, part = key.partition("/")
    found = _FOLDER.fullmatch(folder)
    return bool(found and part and int(found[1]) <= fence and folder not in named)
