"""Writing sets of parts so that a reader sees a whole set or none, and a writer that was replaced sees its end.

Parts go first, each to a name that no other attempt uses; the manifest with their sizes and hashes goes last, by a
conditional put. The row of manifests is explained in manifest.py.
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
"""Parts that travel at the same time."""
_MAX_ATTEMPTS = 100
"""How often others may be faster in taking over before that is an error."""


class PartWriter:
    """Takes the parts of one set."""

    def __init__(self, store: Store, folder: str, parallel: int) -> None:
        self.folder = folder
        self._store = store
        self._pool = ThreadPoolExecutor(parallel, thread_name_prefix="callsheet-parts")
        self._room = threading.Semaphore(parallel)
        self._bodies: dict[str, UploadBody] = {}
        self._futures: dict[str, Future[str]] = {}

    def put(self, name: str, data: UploadData, *, progress: Progress | None = None) -> None:
        """Send a part on its way; waits while others are. `data` must stay as it is until the set is closed."""
        if name in self._bodies:
            raise UserError(f"the set has two parts called {name!r}", fix="give each a name of its own")
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
        """Stop, and remove what is there already if that is possible at once; else a sweep finds it."""
        for body in self._bodies.values():
            body.cancel()
        self._pool.shutdown(cancel_futures=True)
        with contextlib.suppress(CallsheetError):
            once = self._store.within(0.0)
            once.delete(*(entry.key for entry in once.list(self.folder)))


class SetWriter:
    """The one writer of a row of sets, from `claim` until another one claims."""

    def __init__(self, store: Store, record: ManifestRecord) -> None:
        self.store = store
        self.claimed = record
        self.active: set[str] = set()
        """Folders of sets that are being written, or whose manifest was sent and may still arrive."""
        self.needs_sweep = False
        """Whether parts may be left of a set that failed."""
        self._doubtful: set[str] = set()
        self._last = record.number

    @property
    def fence(self) -> int:
        """Larger than that of every writer before."""
        return self.claimed.fence

    @contextlib.contextmanager
    def write_set(
        self, name: str, *, info: Mapping[str, Any] | None = None, parallel: int = PARALLEL
    ) -> Iterator[PartWriter]:
        """Write a set: put its parts in the block; it becomes the latest when the block ends without an error.

        Fenced when another writer has taken over. After any other error from the end of the block the set may be
        there or not, whole in any case: the answer may have been lost."""
        if "/" in name or not name:
            raise UserError(
                f"{name!r} cannot be the name of a set", fix="choose one without slashes, like step-120"
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
        """No manifest of before can arrive any more: the numbers are taken."""
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
                except NotFound:  # a claim that was replaced just now; the later one is there
                    self.check_fence()
                    continue
                if existing.incarnation != record.incarnation:
                    raise self._fenced(existing.number)
                self._last = existing.number  # our own, whose answer was lost
                if existing != record:
                    continue
            self._last = record.number
            self._confirm(record.number)
            return

    def _confirm(self, number: int) -> None:
        """Fenced unless our record counts. One that a successor has found when it claimed is a set like any other; one
        that came to its place later, because what had stood there was removed long ago, goes again."""
        newer = _later_records(self.store, number)
        if newer and not any(
            isinstance(r, ManifestRecord) and r.number == number for r in all_records(self.store)
        ):
            self.store.delete(manifest.key(number))
            raise self._fenced(newer[0])

    def check_fence(self) -> None:
        """Fenced when somebody else has written after our last record."""
        if newer := _later_records(self.store, self._last):
            raise self._fenced(newer[0])

    def _fenced(self, number: int) -> Fenced:
        return Fenced(
            f"another writer has taken over {self.store.url}: it wrote record {number} after our {self._last}",
            fix="stop this process; the other one goes on",
        )

    def keep(self, last: int, *, also: tuple[str, ...] = ()) -> list[str]:
        """Remove all sets but the newest `last` and those whose name is in `also`; the names of the removed."""
        from callsheet.store.retention import keep, sweep

        removed = keep(self, last, also)
        if self.needs_sweep:
            sweep(self)
            self.needs_sweep = False
        return removed


def claim(store: Store, *, order: int | None = None) -> SetWriter:
    """Become the one writer of sets in this store; whoever was before can finish no set any more.

    `order` is for those who know their place, such as a replica's attempt: a claim with a smaller one than the latest
    writer's is refused, so that a process that was stuck before it claimed cannot come back.

    What killed writers have left of sets that they never finished is removed."""
    from callsheet.store.retention import sweep

    for _ in range(_MAX_ATTEMPTS):
        top = next(iter(manifest.record_numbers(store)), 0)
        before, latest = _newest_record(store)
        if before and before.order is not None and order is not None and order < before.order:
            raise Fenced(
                f"{store.url} belongs to a later writer: its order is {before.order}, ours {order}",
                fix="stop this process; the other one goes on",
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
        with contextlib.suppress(CallsheetError):  # what stays is removed by the next one
            sweep(writer)
        return writer
    raise RetryError(
        f"too many writers want {store.url} at the same time", fix="let one of them run, then try again"
    )


def _newest_record(store: Store) -> tuple[ManifestRecord | None, int | None]:
    """The newest record that can be read, and the number of the newest set: 0 for none, None for one that is bad."""
    records = all_records(store)
    first = next((record for record in records if isinstance(record, ManifestRecord)), None)
    for record in records:
        if isinstance(record, BadSet):
            return first, None
        if record.kind == "set":
            return first, record.number
    return first, 0


def _later_records(store: Store, number: int) -> list[int]:
    """Records after this one. A list may miss a claim that is being replaced by a later one, but not twice."""
    return manifest.record_numbers(store, after=number) or manifest.record_numbers(store, after=number)


def _remove_older_claims(store: Store, number: int) -> None:
    """Those between us and the latest set say nothing any more; else a restarting writer would pile them up."""
    with contextlib.suppress(NotFound):  # a later claim removes them
        for record in manifest.walk(store, before=number):
            if isinstance(record, BadSet) or record.kind == "set":
                return
            store.delete(manifest.key(record.number))
