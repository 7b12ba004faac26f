"""The replay server: tables, their clients and snapshots, in one loop."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterable

from callsheet.errors import UserError
from callsheet.runtime import limits
from callsheet.runtime.context import Closeable, Context
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
"""Seconds after which waiting clients are told why they wait."""
_DRAIN_QUIET = 0.2
_DRAIN_SECONDS = 2.0
"""Seconds to accept items after a stop request; it ends earlier if none arrive for a while."""


class ReplayServer(Closeable):
    """Holds items that writers insert and learners sample: one role of an experiment, or several shards.

    ::

        with Context.from_env() as ctx, ReplayServer(ctx, "replay", Table(kind="prioritized", items=100_000)) as server:
            server.serve()

    With `snapshot_every` seconds, the tables are stored under `storage` (default: the run's storage), also on SIGTERM, and
    a server that starts there restores them. The last `keep` snapshots are kept.
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
                "snapshot_every", snapshot_every, "pass seconds above 0, or None for no snapshots"
            )
        configs = [tables] if isinstance(tables, Table) else list(tables)
        if not configs or len({table.name for table in configs}) != len(configs):
            raise UserError(
                f"the tables of a replay need different names, not {[table.name for table in configs]}",
                fix="name each table",
            )
        self.context = context
        self._snapshot_every = snapshot_every
        self._services = {table.name: TableService(LiveTable(table)) for table in configs}
        self._snapshot_writer: SnapshotWriter | None = None
        self._stored_at = time.monotonic()
        self._stored_changes = 0
        self._notified = 0.0
        self._busy = False
        """Whether there is work even if nothing new arrives."""
        epoch = context.incarnation
        if snapshot_every is not None:
            epoch = self._restore(context.storage if storage is None else storage, endpoint, keep, configs)
        for service in self._services.values():
            service.table.begin_epoch(epoch)
        self._stored_changes = self._change_count()
        pattern = EndpointHandler(protocol.SERVICE, accept=self._accept, on_disconnect=self._on_disconnect)
        self.listener = Listener(context, endpoint, pattern, window=window)
        self.address = self.listener.address
        metrics = context.data_plane_metrics.track("ReplayServer", endpoint, self.counts)
        if self._snapshot_writer is not None:
            self._snapshot_writer.observe = metrics.snapshot_seconds.observe

    def _restore(self, storage: str, endpoint: str, keep: int, configs: list[Table]) -> int:
        if not storage:
            raise UserError(
                f"the replay at {endpoint!r} has no storage for its snapshots",
                fix="set `storage:` in the experiment file, or disable snapshots",
            )
        folder = f"checkpoints/{self.context.role}-{self.context.index}/{endpoint}"
        store = open_store(storage).sub(folder)
        self._snapshot_writer = SnapshotWriter(store, keep, self._wake)
        for name, restored in restore(store, configs).items():
            table = restored.service.table
            self._services[name] = restored.service
            if table.schema:
                self._snapshot_writer.mark_stored(name, table.ring, restored.segments)
            log.info("restored table %s with %s items", name, f"{table.size:,}")
        return self._snapshot_writer.fence

    def _wake(self) -> None:
        self.listener.wake()

    def serve(self, timeout: float | None = None) -> None:
        """Serve until the process should stop, or for `timeout` seconds; then store a last snapshot."""
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
        """Process messages, waiting up to `timeout` for the first."""
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
        """Store the tables now, and wait for that; return whether it worked. Clients wait meanwhile."""
        if self._snapshot_writer is None:
            raise UserError("this replay takes no snapshots", fix="pass snapshot_every=seconds")
        deadline = Deadline(timeout)
        self._acknowledge(self._snapshot_writer.collect(deadline.left()))  # of one in progress
        if not self._snapshot_writer.running:
            self._start_snapshot(self._snapshot_writer)
            self._acknowledge(self._snapshot_writer.collect(deadline.left()))
        return not self._snapshot_writer.running and self._snapshot_writer.error is None

    def table(self, name: str = "replay") -> LiveTable:
        """One of the tables."""
        return self._services[name].table

    def counts(self) -> dict[str, float]:
        """Counters for the metrics, over all tables."""
        counters: dict[str, float] = {}
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
                counters[name] = counters.get(name, 0) + value
        counters["samples_per_insert"] = counters["samples"] / max(1, counters["inserts"])
        if self._snapshot_writer is not None:
            stats = self._snapshot_writer.counts
            counters |= {"snapshots": stats.stored, "snapshot_failures": stats.failed}
            counters |= {"snapshot_bytes": stats.bytes, "snapshot_seconds": stats.seconds}
            counters |= {"snapshot_pause_seconds": stats.pause, "snapshot_longest_pause": stats.longest_pause}
        return counters

    def close(self) -> None:
        """Stop serving. Items that are not in a snapshot are lost."""
        self.listener.close()
        if self._snapshot_writer is not None:
            with contextlib.suppress(Fenced):  # already reported, or nobody cares anymore
                self._snapshot_writer.collect(timeout=None)
        self.context.data_plane_metrics.untrack(self.counts)

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
        """The first item determines the schema, the others must match. A hello alone decides nothing: a writer that
        never sends an item must not lock out the others."""
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
        stats = [service.table.counts for service in self._services.values()]
        return sum(table.inserted + table.sampled + table.updated for table in stats)

    def _snapshot_if_due(self, snapshots: SnapshotWriter, now: float) -> None:
        if snapshots.running:
            self._acknowledge(snapshots.collect())
        if snapshots.running:
            return
        if snapshots.error is None and self._change_count() == self._stored_changes:
            for service in self._services.values():
                service.snapshot_requests.clear()  # everything is stored already
            return
        requested = any(service.snapshot_requested for service in self._services.values())
        age, soonest = now - self._stored_at, max(_NOTIFY_EVERY, snapshots.counts.seconds)
        if age >= (self._snapshot_every or 0) or (requested and age >= soonest):
            self._start_snapshot(snapshots)

    def _start_snapshot(self, snapshots: SnapshotWriter) -> None:
        begun = time.monotonic()
        frozen = [freeze(service) for service in self._services.values()]
        self._stored_changes, self._stored_at = self._change_count(), begun
        for service in self._services.values():
            service.snapshot_requests.clear()
        snapshots.start(frozen, time.monotonic() - begun)

    def _acknowledge(self, done: dict[str, Cursor] | None) -> None:
        """Tell writers which of their items a snapshot has."""
        if done is None:
            return
        notify = {
            name: self._services[name].delivery_log.mark_durable(cursor) for name, cursor in done.items()
        }
        for peer in self.listener.peers:
            service = self._client_of(peer).service
            if peer.name in notify.get(service.table.options.name, ()):
                body = service.delivery_log.acknowledgement(peer.name, peer.incarnation)
                peer.send(m.Header(stream.ACKNOWLEDGE, body=body))

    def _drain(self) -> None:
        """Accept what writers that stop at the same time still send."""
        end, quiet = Deadline(_DRAIN_SECONDS), Deadline(_DRAIN_QUIET)
        with self.listener.ignoring_stop():
            while not end.passed and not quiet.passed:
                for frame in self.listener.poll(end.left(quiet.left())):
                    self._handle(frame)
                    quiet = Deadline(_DRAIN_QUIET)
                for service in self._services.values():
                    service.process_pending()
        self.listener.flush_releases()  # before the snapshot, which may take longer than writers wait
