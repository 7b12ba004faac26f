"""Which sets stay: removing old ones, and the parts that dead writers left behind."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING

from callsheet.errors import UserError
from callsheet.store import manifest
from callsheet.store.base import Entry
from callsheet.store.failures import BadSet
from callsheet.store.manifest import Record

if TYPE_CHECKING:
    from callsheet.store.sets import SetWriter

_FOLDER = re.compile(r"(.+\.(\d+)-[0-9a-f]{8})/.+")
"""Where parts are: name, fence of the writer, and eight letters for the attempt."""


def keep(writer: SetWriter, last: int, also: Collection[str]) -> list[str]:
    """Remove manifests first, then their parts: a set is never seen without them."""
    if last < 1:
        raise UserError(f"keep(last={last}) would remove the latest set", fix="keep at least one")
    writer.must_hold()
    store = writer.store
    records = manifest.everything(store)
    sets = [r for r in records if isinstance(r, Record) and r.kind == "set"]
    removed = [record for record in sets[last:] if record.name not in also]
    kept = {record.number for record in sets if record not in removed}
    oldest_kept = min((record.number for record in sets[:last]), default=0)
    for number in reversed(manifest.numbers(store)):
        # Claims and bad manifests go with the sets of their time; the newest record never goes.
        if number < oldest_kept and number not in kept:
            store.delete(manifest.key(number))
    for record in removed:
        store.delete(*(entry.key for entry in store.list(record.folder)))
    return [record.name for record in removed]


def sweep(writer: SetWriter, older_than: float) -> int:
    """Remove parts of no set: written by somebody who was replaced, or by us in a failed attempt, and old.

    Age is told by the store's own clock: how much later the newest object was written."""
    writer.must_hold()
    store = writer.store
    entries = store.list()
    records = manifest.everything(store)
    if any(isinstance(record, BadSet) for record in records):
        return store.sweep(older_than)  # the bad manifest may be the one that names them
    named = {record.folder for record in records if isinstance(record, Record)} | writer.active
    now = max((entry.modified for entry in entries), default=0.0)
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        match = _FOLDER.fullmatch(entry.key)
        if match and int(match[2]) <= writer.fence and match[1] not in named:
            found.setdefault(match[1], []).append(entry)
    old = [some for some in found.values() if now - max(e.modified for e in some) > older_than]
    keys = [entry.key for some in old for entry in some]
    store.delete(*keys)
    return len(keys) + store.sweep(older_than)
