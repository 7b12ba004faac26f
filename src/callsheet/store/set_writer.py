"""Writes sets of parts atomically: readers see a complete set or none, and a replaced writer finds out.

Parts are uploaded first, under a name unique to the attempt; the manifest with their sizes and hashes comes last, by
a conditional put. See manifest.py.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any

from callsheet.errors import CallsheetError, RetryError, UserError
from callsheet.store import manifest
from callsheet.store.errors import BadSet, Fenced, NotFound
from callsheet.store.manifest import ManifestRecord, PartInfo, all_records
from callsheet.store.store import Store
from callsheet.store.upload import Progress, UploadBody, UploadData

PARALLEL = 4
"""Parallel uploads."""
_MAX_ATTEMPTS = 100
"""How often other writers may win the race to claim before that is an error."""


class PartWriter:
    """Uploads the parts of one set."""

    def __init__(self, store: Store, folder: str, parallel: int) -> None:
        self.folder = folder
        self._store = store
        self._pool = ThreadPoolExecutor(parallel, thread_name_prefix="callsheet-parts")
        self._room = threading.Semaphore(parallel)
        self._bodies: dict[str, UploadBody] = {}
        self._futures: dict[str, Future[str]] = {}

    def put(self, name: str, data: UploadData, *, progress: Progress | None = None) -> None:
        """Start uploading a part; waits while too many are in progress. Do not change `data` until the set is closed."""
        if name in self._bodies:
            raise UserError(f"the set has two parts called {name!r}", fix="give each part its own name")
        self._raise_first_failure()
        body = self._bodies[name] = UploadBody(data, progress, hashed=True)
        self._room.acquire()
        self._futures[name] = self._pool.submit(self._send, name, body)

    def _send(self, name: str, body: UploadBody) -> str:
        try:
            return self._store.put_body(f"{self.folder}/{name}", body)
        finally:
            self._room.release()

    def _raise_first_failure(self) -> None:
        for future in self._futures.values():
            if future.done() and (error := future.exception()):
                raise error

    def finish(self) -> tuple[PartInfo, ...]:
        """Wait until every part is stored."""
        wait(self._futures.values(), return_when=FIRST_EXCEPTION)
        self._raise_first_failure()
        self._pool.shutdown()
        return tuple(PartInfo(name, body.done, body.sha256) for name, body in self._bodies.items())

    def abandon(self) -> None:
        """Stop, and try once to remove what was uploaded; otherwise a sweep removes it."""
        for body in self._bodies.values():
            body.cancel()
        self._pool.shutdown(cancel_futures=True)
        with contextlib.suppress(CallsheetError):
            once = self._store.within(0.0)
            once.delete(*(entry.key for entry in once.list(self.folder)))


class SetWriter:
    """The only writer of a store's sets, from `claim` until another one claims."""

    def __init__(self, store: Store, record: ManifestRecord) -> None:
        self.store = store
        self.claimed = record
        self.active: set[str] = set()
        """Folders of sets in progress, or whose manifest was sent and may still arrive."""
        self.needs_sweep = False
        """Whether parts of a failed set may be left."""
        self._doubtful: set[str] = set()
        self._last = record.number

    @property
    def fence(self) -> int:
        """Larger than that of every earlier writer."""
        return self.claimed.fence

    @contextlib.contextmanager
    def write_set(
        self, name: str, *, info: Mapping[str, Any] | None = None, parallel: int = PARALLEL
    ) -> Iterator[PartWriter]:
        """Write a set: put its parts inside the block; the set is published when the block ends without an error.

        Raises `Fenced` if another writer has taken over. After any other error at the end of the block the set may
        exist or not, but never partly: the response may have been lost.
        """
        if "/" in name or not name:
            raise UserError(
                f"{name!r} is not a valid name for a set",
                fix="choose a name without slashes, such as step-120",
            )
        stored_info = json.loads(json.dumps(dict(info or {}), allow_nan=False))
        folder = f"{name}.{self.fence}-{secrets.token_hex(4)}"
        parts = PartWriter(self.store, folder, parallel)
        self.active.add(folder)
        try:
            try:
                yield parts
                stored = parts.finish()
            except BaseException:
                self._abandon(parts)
                raise
            record = replace(
                self.claimed, kind="set", name=name, folder=folder, parts=stored, info=stored_info
            )
            try:
                self._append(replace(record, created=time.time()))
            except Fenced:
                self._abandon(parts)
                raise
            except BaseException:
                self._doubtful.add(folder)
                raise
            self._resolve_doubtful()
        finally:
            if folder not in self._doubtful:
                self.active.discard(folder)

    def _resolve_doubtful(self) -> None:
        """Manifests sent before can no longer arrive: their numbers are taken."""
        self.needs_sweep = self.needs_sweep or bool(self._doubtful)
        self.active -= self._doubtful
        self._doubtful.clear()

    def _abandon(self, parts: PartWriter) -> None:
        self.needs_sweep = True
        parts.abandon()

    def _append(self, record: ManifestRecord) -> None:
        while True:
            record = replace(record, number=self._last + 1)
            data = record.encode()
            if self.store.put_if_absent(manifest.key(record.number), data) is None:
                try:
                    existing = manifest.read(self.store, record.number)
                except NotFound:  # a claim that was just replaced; the later one is there
                    self.check_fence()
                    continue
                if existing.incarnation != record.incarnation:
                    raise self._fenced(existing.number)
                self._last = existing.number  # our own, whose response was lost
                if existing != record:
                    continue
            self._last = record.number
            self._confirm(record.number)
            return

    def _confirm(self, number: int) -> None:
        """Raise `Fenced` unless our record is valid. If a successor found it when claiming, it is a set like any
        other; if it was written later, where an old record had been removed, it is deleted."""
        newer = _later_records(self.store, number)
        if newer and not any(
            isinstance(r, ManifestRecord) and r.number == number for r in all_records(self.store)
        ):
            self.store.delete(manifest.key(number))
            raise self._fenced(newer[0])

    def check_fence(self) -> None:
        """Raise `Fenced` if another writer has written after our last record."""
        if newer := _later_records(self.store, self._last):
            raise self._fenced(newer[0])

    def _fenced(self, number: int) -> Fenced:
        return Fenced(
            f"another writer has taken over {self.store.url}: it wrote record {number} after our {self._last}",
            fix="stop this process; the other one continues",
        )

    def keep(self, last: int, *, also: tuple[str, ...] = ()) -> list[str]:
        """Remove all sets except the newest `last` and those named in `also`; return the names of the removed."""
        from callsheet.store.retention import keep, sweep

        removed = keep(self, last, also)
        if self.needs_sweep:
            sweep(self)
            self.needs_sweep = False
        return removed


def claim(store: Store, *, order: int | None = None) -> SetWriter:
    """Become the only writer of sets in this store; the previous writer can no longer finish a set.

    `order` is for writers that know their position, such as a replica's attempt number: a claim with a smaller one
    than the latest writer's is refused, so a process that hung before it claimed cannot take over.

    What killed writers left of unfinished sets is removed.
    """
    from callsheet.store.retention import sweep

    for _ in range(_MAX_ATTEMPTS):
        top = next(iter(manifest.record_numbers(store)), 0)
        before, latest = _newest_record(store)
        if before and before.order is not None and order is not None and order < before.order:
            raise Fenced(
                f"{store.url} belongs to a later writer: its order is {before.order}, ours {order}",
                fix="stop this process; the other one continues",
            )
        number = top + 1
        record = ManifestRecord(
            "claim", number, number, secrets.token_hex(8), time.time(), order, follows=latest
        )
        if store.put_if_absent(manifest.key(number), record.encode()) is None:
            continue
        if _later_records(store, number):
            store.delete(manifest.key(number))
            continue
        _remove_older_claims(store, number)
        writer = SetWriter(store, record)
        with contextlib.suppress(CallsheetError):  # removed by the next writer
            sweep(writer)
        return writer
    raise RetryError(
        f"too many writers claim {store.url} at the same time", fix="let one of them run, then try again"
    )


def _newest_record(store: Store) -> tuple[ManifestRecord | None, int | None]:
    """The newest readable record, and the number of the newest set: 0 if there is none, None if it is damaged."""
    records = all_records(store)
    first = next((record for record in records if isinstance(record, ManifestRecord)), None)
    for record in records:
        if isinstance(record, BadSet):
            return first, None
        if record.kind == "set":
            return first, record.number
    return first, 0


def _later_records(store: Store, number: int) -> list[int]:
    """Records after this one. A listing may miss a claim that is just being replaced by a later one, but not twice."""
    return manifest.record_numbers(store, after=number) or manifest.record_numbers(store, after=number)


def _remove_older_claims(store: Store, number: int) -> None:
    """Remove claims between ours and the latest set; otherwise a writer that keeps restarting would pile them up."""
    with contextlib.suppress(NotFound):  # a later claim removes them
        for record in manifest.walk(store, before=number):
            if isinstance(record, BadSet) or record.kind == "set":
                return
            store.delete(manifest.key(record.number))
