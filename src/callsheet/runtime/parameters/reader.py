"""The reading side: requests newer parameters, and copies a complete snapshot or nothing."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from callsheet.runtime import limits
from callsheet.runtime.context import Closeable, Context
from callsheet.runtime.link.frame import Frame
from callsheet.runtime.link.link import Link, TimedOut
from callsheet.runtime.link.protocol import BadMessage, Header, Welcome
from callsheet.runtime.parameters import protocol
from callsheet.runtime.parameters.protocol import Version
from callsheet.runtime.parameters.snapshot_buffer import arrays_offset
from callsheet.runtime.schema import Schema
from callsheet.runtime.stop import Deadline

log = logging.getLogger("callsheet.runtime")
_FETCH_TIMEOUT = 1.0
"""Seconds that a poll waits for a snapshot that is known to exist."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All parameters of one version."""

    version: int
    incarnation: int
    """The publisher's incarnation; a restarted publisher may begin with a lower version."""
    arrays: dict[str, np.ndarray] = field(repr=False)


@dataclass(slots=True)
class _ReceivedSnapshot:
    frame: Frame
    version: Version
    schema: Schema


class ParameterReader(Closeable):
    """Reads the latest parameters. Use it from one thread at a time; nothing runs in the background.

    `poll` is for an actor's loop: it costs a few microseconds while nothing is new::

        with Context.from_env() as ctx, ParameterReader(ctx, "parameters") as reader:
            policy = reader.wait()              # the first one
            while not ctx.stopping:
                policy = reader.poll() or policy
                act(policy.arrays["weights"])

    The reader reuses its arrays for the next snapshot; pass `out` to copy into your own. With `views=True` nothing is
    copied: the arrays are read-only views of the publisher's memory, valid until the next snapshot is returned.
    """

    def __init__(
        self, context: Context, endpoint: str, *, views: bool = False, connect_to: str | None = None
    ) -> None:
        self._link = Link(
            context,
            endpoint,
            protocol.SERVICE,
            address=connect_to or "",
            on_connect=self._on_connect,
            on_data=self._on_data,
        )
        context.data_plane_metrics.track("ParameterReader", endpoint, self.counts)
        self._views = views
        self._current = Version()
        self._latest = Version()
        self._fetching: Version | None = None
        self._watching: Version | None = None
        self._received: _ReceivedSnapshot | None = None
        self._viewed_frame: Frame | None = None
        self._schema: Schema | None = None
        self._arrays_schema: Schema | None = None
        self._arrays: dict[str, np.ndarray] = {}
        self._snapshot_count = 0
        self._bytes = 0

    @property
    def version(self) -> int:
        """The version returned last; -1 before the first."""
        return self._current.number

    @property
    def shared_memory(self) -> bool | None:
        """Whether snapshots are read from shared memory; None while disconnected."""
        return self._link.shared_memory

    def poll(
        self, newer_than: int | None = None, out: Mapping[str, np.ndarray] | None = None
    ) -> Snapshot | None:
        """The latest snapshot if it is newer than the last one (or than `newer_than`); otherwise None, at once."""
        wanted = self._wanted(newer_than)
        link = self._link
        if not link.connected and not link.try_connect():
            return None
        link.check_connection()
        self._drop_outdated(wanted)
        if self._received is None:
            if not self._latest.newer_than(wanted):
                self._request(protocol.WATCH, wanted)
                return None
            if self._fetching == wanted:
                return None  # the last poll waited long enough; it will arrive
        try:
            return self._fetch(wanted, Deadline(_FETCH_TIMEOUT), out)
        except TimedOut:
            return None

    def wait(
        self,
        newer_than: int | None = None,
        timeout: float | None = None,
        out: Mapping[str, np.ndarray] | None = None,
    ) -> Snapshot:
        """Wait for a snapshot that is newer than the last one (or than `newer_than`)."""
        wanted = self._wanted(newer_than)
        if self._link.connected:
            self._link.check_connection()
            self._drop_outdated(wanted)
        try:
            return self._fetch(wanted, Deadline(timeout), out)
        except TimedOut as error:
            self._request(protocol.WATCH, wanted)
            if not self._link.connected:
                raise
            raise TimedOut(
                f"{self._link.address} published nothing newer than version {wanted.number} in {timeout} s",
                fix="wait longer, or check the publisher",
            ) from error

    def _wanted(self, newer_than: int | None) -> Version:
        if newer_than is None:
            return self._current
        number = limits.integer("newer_than", newer_than, protocol.NO_VERSION, protocol.MAX_VERSION)
        return Version(self._current.incarnation, number)

    def _fetch(self, wanted: Version, deadline: Deadline, out: Mapping[str, np.ndarray] | None) -> Snapshot:
        while True:
            received, self._received = self._received, None
            if received is not None:
                if received.version.newer_than(wanted):
                    return self._deliver(received, out)
                received.frame.release()
            self._request(protocol.FETCH, wanted)
            self._link.wait(deadline)

    def _request(self, verb: int, wanted: Version) -> None:
        if not self._link.connected or wanted == (
            self._fetching if verb == protocol.FETCH else self._watching
        ):
            return
        if self._link.send(Header(verb, body=protocol.encode(wanted))):
            self._fetching, self._watching = (wanted, None) if verb == protocol.FETCH else (None, wanted)

    def _drop_outdated(self, wanted: Version) -> None:
        """Drop a snapshot that arrived while nobody waited, if there is a newer one."""
        received = self._received
        if received is not None and (
            self._latest.newer_than(received.version) or not received.version.newer_than(wanted)
        ):
            self._received = None
            received.frame.release()

    def _deliver(self, received: _ReceivedSnapshot, out: Mapping[str, np.ndarray] | None) -> Snapshot:
        frame, schema = received.frame, received.schema
        start = arrays_offset(schema)
        views = schema.layout(1).views(frame.contiguous()[start:])
        arrays = {name: view.reshape(view.shape[1:]) for name, view in views.items()}
        self._snapshot_count += 1
        self._bytes += len(frame.payload)
        if self._views and out is None:
            for view in arrays.values():
                view.flags.writeable = False
            if self._viewed_frame is not None:
                self._viewed_frame.release()
            self._viewed_frame = frame
        else:
            try:
                arrays = self._copy(arrays, schema, out)
            finally:
                del views
                frame.release()
        self._current = received.version
        return Snapshot(received.version.number, received.version.incarnation, arrays)

    def _copy(
        self, arrays: dict[str, np.ndarray], schema: Schema, out: Mapping[str, np.ndarray] | None
    ) -> dict[str, np.ndarray]:
        if out is not None:
            target = schema.check(out)
        else:
            if self._arrays_schema is not schema:
                self._arrays = {name: np.empty_like(view) for name, view in arrays.items()}
                self._arrays_schema = schema
            target = self._arrays
        for name, view in arrays.items():
            np.copyto(target[name], view)
        return target

    def _on_connect(self, welcome: Welcome) -> None:
        self._latest = protocol.decode_version(welcome.body)
        self._fetching = self._watching = self._received = None

    def _on_data(self, frame: Frame) -> None:
        header = frame.header
        version = protocol.decode_version(header.body)
        if header.verb == protocol.NOTICE:
            self._latest, self._watching = version, None
            return
        if header.verb != protocol.SNAPSHOT:
            raise BadMessage(f"the word {header.verb}")
        schema = self._schema
        if schema is None or header.schema != schema.hash:
            schema = self._schema = _decode_schema(frame)
        if arrays_offset(schema) + schema.layout(1).nbytes != len(frame.payload):
            raise BadMessage(f"a snapshot of {len(frame.payload)} bytes")
        if self._received is not None:
            self._received.frame.release()
        self._received = _ReceivedSnapshot(frame, version, schema)
        self._latest = version
        self._fetching, self._watching = None, version  # the server notifies us of the next one

    def counts(self) -> dict[str, float]:
        """Counters for the metrics."""
        link = self._link.counts
        return {
            "version": self.version,
            "behind": max(0, self._latest.number - self.version),
            "snapshots": self._snapshot_count,
            "bytes": self._bytes,
            "connects": link.connects,
        }

    def close(self) -> None:
        """Close the connection."""
        self._link.close()
        self._received = self._viewed_frame = None
        self._link.context.data_plane_metrics.untrack(self.counts)


def _decode_schema(frame: Frame) -> Schema:
    length = frame.header.sequence
    if not 0 < length <= len(frame.payload):
        raise BadMessage(f"a schema of {length} bytes")
    try:
        schema = Schema.decode(bytes(frame.contiguous()[:length]))
    except ValueError as error:
        raise BadMessage(str(error)) from None
    if schema.hash != frame.header.schema or not schema.fixed:
        raise BadMessage("a schema that is not the announced one")
    return schema
