"""The server of a replay: tables, their clients, and snapshots, in one loop."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterable
from types import TracebackType

from callsheet.errors import UserError
from callsheet.runtime import limits
from callsheet.runtime.context import Context
from callsheet.runtime.link import protocol as m
from callsheet.runtime.link.endpoint_handler import EndpointHandler, RefuseLink
from callsheet.runtime.link.frame import Frame
from callsheet.runtime.link.listener import Listener
from callsheet.runtime.link.peer import Peer
from callsheet.runtime.replay import protocol
from callsheet.runtime.replay.config import Table, items_of
from callsheet.runtime.replay.server.snapshot_format import freeze
from callsheet.runtime.replay.server.snapshot_restore import restore
from callsheet.runtime.replay.server.snapshot_writer import SnapshotWriter
from callsheet.runtime.replay.server.table import LiveTable
from callsheet.runtime.replay.server.table_service import TableClient, TableService
from callsheet.runtime.schema import Schema
from callsheet.runtime.stop import Deadline, Stopping
from callsheet.runtime.stream import sender as stream
from callsheet.runtime.stream.delivery_log import Cursor
from callsheet.store import Fenced, open_store

log = logging.getLogger("callsheet.runtime")
_NOTIFY_EVERY = 0.2
"""Seconds after which those who wait are told why."""
_DRAIN_QUIET = 0.2
_DRAIN_SECONDS = 2.0
"""Seconds for which items are taken when the process should stop, and without one for so long it is over."""


class ReplayServer:
    """Holds items that writers insert and learners sample; one role of an experiment, or several shards of it.

    ::

        with Context.from_env() as ctx, ReplayServer(ctx, "replay", Table(kind="prioritized", items=100_000)) as server:
            server.serve()

    With `snapshot_every` seconds, the tables are stored below `storage` (the run's, when none is given), also on
    SIGTERM, and a server that starts there goes on with them. `keep` snapshots are kept.
    """

    def __init__(
        self,
        context: Context,
        endpoint: str,
        tables: Table | Iterable[Table],
        *,
        window: int = 8,
        snapshot_every: float | None = None,
        storage: str | None = None,
        keep: int = 2,
    ) -> None:
        window = limits.window(window)
        keep = limits.integer("keep", keep, 1)
        if snapshot_every is not None:
            limits.positive(
                "snapshot_every", snapshot_every, "write seconds above 0, or None for no snapshots"
            )
        wanted = [tables] if isinstance(tables, Table) else list(tables)
        if not wanted or len({one.name for one in wanted}) != len(wanted):
            raise UserError(
                f"a replay needs tables with different names, not {[one.name for one in wanted]}",
                fix="name each of them",
            )
        self.context = context
        self._snapshot_every = snapshot_every
        self._services = {one.name: TableService(LiveTable(one)) for one in wanted}
        self._snapshot_writer: SnapshotWriter | None = None
        self._stored_at = time.monotonic()
        self._stored_changes = 0
        self._notified = 0.0
        self._busy = False
        """Whether there is work although nothing new comes."""
        epoch = context.incarnation
        if snapshot_every is not None:
            epoch = self._restore(context.storage if storage is None else storage, endpoint, keep, wanted)
        for service in self._services.values():
            service.table.begin_epoch(epoch)
        self._stored_changes = self._change_count()
        pattern = EndpointHandler(protocol.SERVICE, accept=self._accept, on_disconnect=self._on_disconnect)
        self.listener = Listener(context, endpoint, pattern, window=window)
        self.address = self.listener.address
        metrics = context.data_plane_metrics.track("ReplayServer", endpoint, self.counts)
        if self._snapshot_writer is not None:
            self._snapshot_writer.observe = metrics.snapshot_seconds.observe

    def _restore(self, storage: str, endpoint: str, keep: int, wanted: list[Table]) -> int:
        if not storage:
            raise UserError(
                f"the replay at {endpoint!r} has no storage for its snapshots",
                fix="say `storage:` in the experiment's file, or switch snapshots off",
            )
        folder = f"checkpoints/{self.context.role}-{self.context.index}/{endpoint}"
        store = open_store(storage).sub(folder)
        self._snapshot_writer = SnapshotWriter(store, keep, self._wake)
        for name, found in restore(store, wanted).items():
            self._services[name] = found.service
            if found.service.table.schema:
                self._snapshot_writer.mark_stored(name, found.service.table.ring, found.segments)
            log.info("table %s goes on with %s items", name, f"{found.service.table.size:,}")
        return self._snapshot_writer.fence

    def _wake(self) -> None:
        self.listener.wake()

    def serve(self, timeout: float | None = None) -> None:
        """Serve until the process should stop; then store a last snapshot. With a timeout, so many seconds."""
        deadline = Deadline(timeout)
        try:
            while not deadline.passed:
                self.step(deadline.left(_NOTIFY_EVERY))
        except Stopping:
            self._drain()
            if self._snapshot_writer is not None:
                self.snapshot()
            raise

    def step(self, timeout: float | None = None) -> None:
        """Deal with what has come, or comes within this time."""
        if timeout is not None:
            limits.seconds("timeout", timeout)
        for frame in self.listener.poll(0.0 if self._busy else timeout):
            self._handle(frame)
        self._busy = False
        for service in self._services.values():
            self._busy = service.process_pending() or self._busy
        now = time.monotonic()
        if now - self._notified > _NOTIFY_EVERY:
            self._notified = now
            self._notify()
        if self._snapshot_writer is not None:
            self._snapshot_if_due(self._snapshot_writer, now)

    def snapshot(self, timeout: float | None = None) -> bool:
        """Store the tables as they are now, and wait until that is done; whether it was. Service stands still."""
        if self._snapshot_writer is None:
            raise UserError("this replay takes no snapshots", fix="pass snapshot_every=seconds")
        deadline = Deadline(timeout)
        self._acknowledge(
            self._snapshot_writer.collect(deadline.left())
        )  # one of an earlier moment, which is under way
        if not self._snapshot_writer.running:
            self._start_snapshot(self._snapshot_writer)
            self._acknowledge(self._snapshot_writer.collect(deadline.left()))
        return not self._snapshot_writer.running and self._snapshot_writer.error is None

    def table(self, name: str = "replay") -> LiveTable:
        """One of the tables."""
        return self._services[name].table

    def counts(self) -> dict[str, float]:
        """What the metrics show, for all tables together."""
        found: dict[str, float] = {}
        for service in self._services.values():
            table = service.table
            for name, value in {
                "items": table.size,
                "bytes": table.size * table.item_bytes,
                "inserts": table.counts.inserted,
                "samples": table.counts.sampled,
                "updates": table.counts.updated,
                "stale_updates": table.counts.stale,
                "evictions": table.counts.evicted,
                "restored": table.counts.restored,
                "duplicates": service.counts.duplicates,
                "missed": service.counts.missed,
                "held_inserts": service.pending_inserts,
                "held_samples": service.pending_samples,
                "insert_wait_seconds": service.counts.insert_wait,
                "sample_wait_seconds": service.counts.sample_wait,
            }.items():
                found[name] = found.get(name, 0) + value
        found["samples_per_insert"] = found["samples"] / max(1, found["inserts"])
        if self._snapshot_writer is not None:
            told = self._snapshot_writer.counts
            found |= {"snapshots": told.stored, "snapshot_failures": told.failed}
            found |= {"snapshot_bytes": told.bytes, "snapshot_seconds": told.seconds}
            found |= {"snapshot_pause_seconds": told.pause, "snapshot_longest_pause": told.longest_pause}
        return found

    def close(self) -> None:
        """Stop serving. What is not in a snapshot is gone."""
        self.listener.close()
        if self._snapshot_writer is not None:
            with contextlib.suppress(Fenced):  # it was told already, or nobody asks any more
                self._snapshot_writer.collect(timeout=None)
        self.context.data_plane_metrics.untrack(self.counts)

    def __enter__(self) -> ReplayServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _accept(self, hello: m.Hello, schema: Schema | None) -> bytes:
        try:
            want = protocol.decode_table_request(hello.body)
        except m.BadMessage as error:
            raise RefuseLink(str(error)) from None
        service = self._services.get(want.table)
        if service is None:
            raise RefuseLink(f"there is no table {want.table!r}, but {', '.join(self._services)}")
        if want.purpose == protocol.TO_SAMPLE:
            return protocol.encode(service.state())
        if want.purpose not in (protocol.WRITE, protocol.WRITE_DURABLY):
            raise RefuseLink(f"it wants to {want.purpose!r}, which a replay cannot")
        if want.purpose == protocol.WRITE_DURABLY and self._snapshot_writer is None:
            raise RefuseLink("this replay takes no snapshots, so nothing becomes durable")
        self._check_schema(service.table, schema)
        return service.delivery_log.acknowledgement(hello.name, hello.incarnation)

    def _check_schema(self, table: LiveTable, schema: Schema | None) -> None:
        """The first item says what items look like, the others agree. A hello alone settles nothing: one that never
        sends an item must not keep all others out."""
        if schema is None:
            raise RefuseLink("a writer must say what its items look like")
        if table.writer_schema is not None:
            if schema != table.writer_schema:
                raise RefuseLink(
                    f"items of table {table.options.name!r} are: {table.writer_schema}",
                    schema=table.writer_schema,
                )
            return
        try:
            table.options.capacity(items_of(schema))
        except (UserError, ValueError) as error:
            raise RefuseLink(str(error)) from None

    def _client_of(self, peer: Peer) -> TableClient:
        if peer.state is None:
            want = protocol.decode_table_request(peer.hello.body)
            peer.state = TableClient(self._services[want.table], samples=want.purpose == protocol.TO_SAMPLE)
        client: TableClient = peer.state
        return client

    def _handle(self, frame: Frame) -> None:
        try:
            client = self._client_of(frame.peer)
            client.service.handle(frame, client)
        except m.BadMessage as error:
            frame.release()
            self.listener.protocol_error(frame.peer, str(error))

    def _on_disconnect(self, peer: Peer) -> None:
        self._client_of(peer).service.on_disconnect(peer)

    def _notify(self) -> None:
        peers = self.listener.peers
        for service in self._services.values():
            service.notify(
                [peer for peer in peers if self._client_of(peer).service is service], _NOTIFY_EVERY
            )

    def _change_count(self) -> int:
        tables = [service.table.counts for service in self._services.values()]
        return sum(one.inserted + one.sampled + one.updated for one in tables)

    def _snapshot_if_due(self, snapshots: SnapshotWriter, now: float) -> None:
        if snapshots.running:
            self._acknowledge(snapshots.collect())
        if snapshots.running:
            return
        if (
            snapshots.error is None and self._change_count() == self._stored_changes
        ):  # all is stored: nobody needs to wish for that any more
            for service in self._services.values():
                service.snapshot_requests.clear()
            return
        wanted = any(service.snapshot_requested for service in self._services.values())
        since = now - self._stored_at
        if since >= (self._snapshot_every or 0) or (
            wanted and since >= max(_NOTIFY_EVERY, snapshots.counts.seconds)
        ):
            self._start_snapshot(snapshots)

    def _start_snapshot(self, snapshots: SnapshotWriter) -> None:
        begun = time.monotonic()
        frozen = [freeze(service) for service in self._services.values()]
        self._stored_changes, self._stored_at = self._change_count(), begun
        for service in self._services.values():
            service.snapshot_requests.clear()
        snapshots.start(frozen, time.monotonic() - begun)

    def _acknowledge(self, done: dict[str, Cursor] | None) -> None:
        """Tell writers what a snapshot has of theirs."""
        if done is None:
            return
        news = {name: self._services[name].delivery_log.mark_durable(marks) for name, marks in done.items()}
        for peer in self.listener.peers:
            service = self._client_of(peer).service
            if peer.name in news.get(service.table.options.name, ()):
                peer.send(
                    m.Header(
                        stream.ACKNOWLEDGE,
                        body=service.delivery_log.acknowledgement(peer.name, peer.incarnation),
                    )
                )

    def _drain(self) -> None:
        """Take what writers that stop at the same time still hand over."""
        end, quiet = Deadline(_DRAIN_SECONDS), Deadline(_DRAIN_QUIET)
        with self.listener.ignoring_stop():
            while not end.passed and not quiet.passed:
                for frame in self.listener.poll(end.left(quiet.left())):
                    self._handle(frame)
                    quiet = Deadline(_DRAIN_QUIET)
                for service in self._services.values():
                    service.process_pending()
        self.listener.flush_releases()  # before the snapshot, which may take longer than writers wait
