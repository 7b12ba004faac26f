"""The side that reads: asks for what is newer, and copies a whole snapshot or nothing."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType

import numpy as np

from callsheet.runtime import limits
from callsheet.runtime.context import Context
from callsheet.runtime.link.frame import Frame
from callsheet.runtime.link.link import Link, TimedOut
from callsheet.runtime.link.protocol import BadMessage, Header, Welcome
from callsheet.runtime.parameters import protocol
from callsheet.runtime.parameters.protocol import Version
from callsheet.runtime.parameters.snapshot_buffer import arrays_at
from callsheet.runtime.schema import Schema
from callsheet.runtime.stop import Deadline

log = logging.getLogger("callsheet.runtime")
_PATIENCE = 1.0
"""Seconds that a poll waits for a snapshot that is known to be there."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All parameters of one version."""

    version: int
    incarnation: int
    """Which start of the publisher this is from: another one may begin with a lower version."""
    arrays: dict[str, np.ndarray] = field(repr=False)


@dataclass(slots=True)
class _Arrived:
    frame: Frame
    version: Version
    schema: Schema


class ParameterReader:
    """Reads the latest parameters. One thread at a time uses it; nothing runs in the background.

    `poll` is for the loop of an actor: it costs a few microseconds while nothing is new::

        with Context.from_env() as ctx, ParameterReader(ctx, "parameters") as reader:
            policy = reader.wait()              # the first one
            while not ctx.stopping:
                policy = reader.poll() or policy
                act(policy.arrays["weights"])

    The arrays are the reader's own and are overwritten by the next snapshot; pass `out` to have them copied elsewhere.
    With `views=True` nothing is copied: the arrays are read-only and show the publisher's memory, until the next
    snapshot is returned.
    """

    def __init__(
        self, context: Context, endpoint: str, *, views: bool = False, connect_to: str | None = None
    ) -> None:
        self._link = Link(
            context,
            endpoint,
            protocol.SERVICE,
            address=connect_to or "",
            on_connect=self._connected,
            on_data=self._took,
        )
        context.measuring.follow("ParameterReader", endpoint, self.counts)
        self._views = views
        self._have = Version()
        self._latest = Version()
        self._asked: Version | None = None
        self._watched: Version | None = None
        self._arrived: _Arrived | None = None
        self._shown: Frame | None = None
        self._schema: Schema | None = None
        self._arrays_of: Schema | None = None
        self._arrays: dict[str, np.ndarray] = {}
        self._snapshots = 0
        self._bytes = 0

    @property
    def version(self) -> int:
        """The version that was returned last; -1 before the first."""
        return self._have.number

    @property
    def shared_memory(self) -> bool | None:
        """Whether the publisher is on this machine and its memory is read; None while there is no connection."""
        return self._link.shared_memory

    def poll(
        self, newer_than: int | None = None, out: Mapping[str, np.ndarray] | None = None
    ) -> Snapshot | None:
        """The latest snapshot if it is newer than the last one (or than that version); else None, at once."""
        wanted = self._wanted(newer_than)
        link = self._link
        if link.shared_memory is None and not link.try_connect():
            return None
        link.check_connection()
        self._drop_outdated(wanted)
        if self._arrived is None:
            if not self._latest.newer_than(wanted):
                self._tell(protocol.WATCH, wanted)
                return None
            if self._asked == wanted:
                return None  # the last poll waited for it long enough; it will come
        try:
            return self._fetch(wanted, Deadline(_PATIENCE), out)
        except TimedOut:
            return None

    def wait(
        self,
        newer_than: int | None = None,
        timeout: float | None = None,
        out: Mapping[str, np.ndarray] | None = None,
    ) -> Snapshot:
        """The latest snapshot, as soon as it is newer than the last one (or than that version)."""
        wanted = self._wanted(newer_than)
        if self._link.shared_memory is not None:
            self._link.check_connection()
            self._drop_outdated(wanted)
        try:
            return self._fetch(wanted, Deadline(timeout), out)
        except TimedOut as error:
            self._tell(protocol.WATCH, wanted)
            if self._link.shared_memory is None:
                raise
            raise TimedOut(
                f"{self._link.address} published nothing newer than version {wanted.number} in {timeout} s",
                fix="wait longer, or see what the publisher does",
            ) from error

    def _wanted(self, newer_than: int | None) -> Version:
        if newer_than is None:
            return self._have
        number = limits.integer("newer_than", newer_than, protocol.NOTHING, protocol.LARGEST_VERSION)
        return Version(self._have.incarnation, number)

    def _fetch(self, wanted: Version, deadline: Deadline, out: Mapping[str, np.ndarray] | None) -> Snapshot:
        while True:
            arrived, self._arrived = self._arrived, None
            if arrived is not None:
                if arrived.version.newer_than(wanted):
                    return self._hand_out(arrived, out)
                arrived.frame.release()
            self._tell(protocol.FETCH, wanted)
            self._link.wait(deadline)

    def _tell(self, verb: int, wanted: Version) -> None:
        if self._link.shared_memory is None or wanted == (
            self._asked if verb == protocol.FETCH else self._watched
        ):
            return
        if self._link.send(Header(verb, body=protocol.encode(wanted))):
            self._asked, self._watched = (wanted, None) if verb == protocol.FETCH else (None, wanted)

    def _drop_outdated(self, wanted: Version) -> None:
        """What came while nobody waited is worth nothing when there is something newer."""
        arrived = self._arrived
        if arrived is not None and (
            self._latest.newer_than(arrived.version) or not arrived.version.newer_than(wanted)
        ):
            self._arrived = None
            arrived.frame.release()

    def _hand_out(self, arrived: _Arrived, out: Mapping[str, np.ndarray] | None) -> Snapshot:
        frame, schema = arrived.frame, arrived.schema
        start = arrays_at(schema)
        views = schema.layout(1).views(frame.contiguous()[start:])
        found = {name: view.reshape(view.shape[1:]) for name, view in views.items()}
        self._snapshots += 1
        self._bytes += len(frame.payload)
        if self._views and out is None:
            for view in found.values():
                view.flags.writeable = False
            if self._shown is not None:
                self._shown.release()
            self._shown = frame
        else:
            try:
                found = self._copy(found, schema, out)
            finally:
                del views
                frame.release()
        self._have = arrived.version
        return Snapshot(arrived.version.number, arrived.version.incarnation, found)

    def _copy(
        self, found: dict[str, np.ndarray], schema: Schema, out: Mapping[str, np.ndarray] | None
    ) -> dict[str, np.ndarray]:
        if out is not None:
            target = schema.check(out)
        else:
            if self._arrays_of is not schema:
                self._arrays = {name: np.empty_like(view) for name, view in found.items()}
                self._arrays_of = schema
            target = self._arrays
        for name, view in found.items():
            np.copyto(target[name], view)
        return target

    def _connected(self, welcome: Welcome) -> None:
        self._latest = protocol.decode_version(welcome.body)
        self._asked = self._watched = self._arrived = None

    def _took(self, frame: Frame) -> None:
        header = frame.header
        version = protocol.decode_version(header.body)
        if header.verb == protocol.NOTICE:
            self._latest, self._watched = version, None
            return
        if header.verb != protocol.SNAPSHOT:
            raise BadMessage(f"the word {header.verb}")
        schema = self._schema
        if schema is None or header.schema != schema.hash:
            schema = self._schema = _schema_in(frame)
        if arrays_at(schema) + schema.layout(1).nbytes != len(frame.payload):
            raise BadMessage(f"a snapshot of {len(frame.payload)} bytes")
        if self._arrived is not None:
            self._arrived.frame.release()
        self._arrived = _Arrived(frame, version, schema)
        self._latest = version
        self._asked, self._watched = None, version  # the server tells when there is a newer one

    def counts(self) -> dict[str, float]:
        """Numbers for the metrics."""
        link = self._link.counts
        return {
            "version": self.version,
            "behind": max(0, self._latest.number - self.version),
            "snapshots": self._snapshots,
            "bytes": self._bytes,
            "connects": link.connects,
        }

    def close(self) -> None:
        """End the connection."""
        self._link.close()
        self._arrived = self._shown = None
        self._link.context.measuring.ended(self.counts)

    def __enter__(self) -> ParameterReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _schema_in(frame: Frame) -> Schema:
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
