"""The publishing side: copies parameters into memory that readers can map, and serves them from a thread."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np

from callsheet.errors import BugError, UserError
from callsheet.runtime import limits
from callsheet.runtime.context import Closeable, Context, new_incarnation
from callsheet.runtime.link.endpoint_handler import EndpointHandler
from callsheet.runtime.link.frame import Frame
from callsheet.runtime.link.listener import Listener
from callsheet.runtime.link.peer import Peer
from callsheet.runtime.link.protocol import MAX_PAYLOAD_BYTES, NO_BLOCK, BadMessage, Header, Hello
from callsheet.runtime.parameters import protocol
from callsheet.runtime.parameters.protocol import Version
from callsheet.runtime.parameters.snapshot_buffer import (
    SHARE_SECONDS,
    BufferedSnapshot,
    SnapshotBuffer,
    arrays_offset,
)
from callsheet.runtime.schema import Schema
from callsheet.runtime.stop import Stopping

log = logging.getLogger("callsheet.runtime")
_MAX_PER_READER = 8
"""Snapshots one reader may hold: one in use, one received, and one more on request."""
_CLOSE_TIMEOUT = 10.0
"""Seconds for the thread to end."""


@dataclass
class _PublisherStats:
    published: int = 0
    published_bytes: int = 0
    sent: int = 0
    sent_bytes: int = 0
    notices: int = 0


class ParameterServer(Closeable):
    """Publishes parameters to any number of readers. `publish` copies once and returns; a thread does the rest.

    Anything that converts to a NumPy array can be published: a network's weights, normalization statistics, a step
    counter. Readers always get the latest version, and all arrays of it::

        with Context.from_env() as ctx, ParameterServer(ctx, "parameters") as server:
            for version in range(1000):
                server.publish(version, {"weights": np.zeros((64, 4), "f4"), "mean": np.zeros(4)})

    Versions are integers that only grow. A restarted server may begin anywhere, for example at the version of its
    checkpoint: readers see a new `incarnation`.
    """

    def __init__(self, context: Context, endpoint: str) -> None:
        self.incarnation = new_incarnation()
        self._counts = _PublisherStats()
        self._snapshots = SnapshotBuffer()
        self._schema: Schema | None = None
        self._publishing = threading.Lock()
        self._fetching: dict[Peer, Version] = {}
        self._watching: dict[Peer, Version] = {}
        self._announced = Version()
        self._blocked = False
        self._closed = False
        self._failure: BaseException | None = None
        self._context = context
        self._listener = Listener(
            context, endpoint, EndpointHandler(protocol.SERVICE, self._accept, self._on_disconnect)
        )
        metrics = context.data_plane_metrics.track("ParameterPublisher", endpoint, self.counts)
        self._publish_seconds = metrics.publish_seconds
        self._thread = threading.Thread(target=self._serve, name=f"callsheet-{endpoint}", daemon=True)
        self._thread.start()
        context.at_close(self.close)

    @property
    def address(self) -> str:
        """The address it listens on."""
        return self._listener.address

    @property
    def version(self) -> int:
        """The latest version; -1 before the first."""
        return self._snapshots.latest.number

    def publish(self, version: int, arrays: Mapping[str, object]) -> None:
        """Publish a version. The arrays are copied, and may be changed as soon as this returns."""
        begun = time.perf_counter()
        with self._publishing:
            version = self._check(version)
            checked, schema = self._as_arrays(arrays)
            size = arrays_offset(schema) + schema.layout(1).nbytes
            if size > MAX_PAYLOAD_BYTES:
                raise UserError(
                    f"parameters of {size:,} bytes are larger than {MAX_PAYLOAD_BYTES:,}",
                    fix="split them over several endpoints",
                )
            stored = self._snapshots.acquire(size)
            try:
                stored.write(Version(self.incarnation, version), schema, checked)
            except BaseException:
                self._snapshots.discard(stored)
                raise
            self._snapshots.publish(stored)
            self._listener.wake()
            counts = self._counts
            counts.published += 1
            counts.published_bytes += size
            self._publish_seconds.observe(time.perf_counter() - begun)

    def _check(self, version: int) -> int:
        if self._failure is not None:
            raise BugError(f"the thread that serves parameters ended: {self._failure!r}") from self._failure
        if self._closed:
            raise UserError("the parameter server is closed", fix="publish before close()")
        version = limits.integer("version", version, 0, protocol.MAX_VERSION)
        if version <= self.version:
            raise UserError(
                f"version {version} is not newer than the published version {self.version}",
                fix="versions must grow; only a restarted process may begin anywhere",
            )
        return version

    def _as_arrays(self, arrays: Mapping[str, object]) -> tuple[dict[str, np.ndarray], Schema]:
        if self._schema is not None:
            with contextlib.suppress(UserError):
                return self._schema.check(arrays), self._schema
        self._schema = Schema.of(arrays)
        return {name: np.asarray(value) for name, value in arrays.items()}, self._schema

    def _accept(self, hello: Hello, schema: Schema | None) -> bytes:
        latest = self._snapshots.latest
        return protocol.encode(Version(self.incarnation, latest.number))

    def _on_disconnect(self, peer: Peer) -> None:
        self._fetching.pop(peer, None)
        self._watching.pop(peer, None)

    def _serve(self) -> None:
        try:
            while not self._closed:
                for frame in self._listener.poll(SHARE_SECONDS / 2 if self._blocked else None):
                    self._handle(frame)
                if self._announced != self._snapshots.latest:
                    self._announce()
                elif self._blocked:
                    self._send_to_waiting()
        except Stopping:
            pass
        except BaseException as error:  # raised by the next publish
            self._failure = error
            log.exception("the thread that serves parameters ended")
        finally:
            self._listener.close()

    def _handle(self, frame: Frame) -> None:
        peer, header = frame.peer, frame.header
        if not peer.alive:
            return  # it disconnected after asking, and would never be removed here
        try:
            if frame.block != NO_BLOCK:
                raise BadMessage("arrays, which nobody reads here")
            wanted = protocol.decode_version(header.body)
            if header.verb == protocol.FETCH:
                if peer.shared_count >= _MAX_PER_READER:
                    raise BadMessage(f"a wish for one more than {_MAX_PER_READER} snapshots")
                self._watching.pop(peer, None)
                if not self._send_snapshot(peer, wanted):
                    self._fetching[peer] = wanted
            elif header.verb == protocol.WATCH:
                self._fetching.pop(peer, None)
                self._watching[peer] = wanted
                self._notice(peer, wanted, self._snapshots.latest)
            else:
                raise BadMessage(f"the word {header.verb}")
        except BadMessage as error:
            self._listener.protocol_error(peer, str(error))

    def _announce(self) -> None:
        """A new version is available."""
        self._announced = latest = self._snapshots.latest
        self._send_to_waiting()
        for peer, wanted in list(self._watching.items()):
            self._notice(peer, wanted, latest)

    def _send_to_waiting(self) -> None:
        self._blocked = False
        for peer, wanted in list(self._fetching.items()):
            self._send_snapshot(peer, wanted)

    def _send_snapshot(self, peer: Peer, wanted: Version) -> bool:
        stored = self._snapshots.lend(wanted)
        if stored is None:
            self._blocked = self._blocked or self._snapshots.latest.newer_than(wanted)
            return False
        self._fetching.pop(peer, None)
        self._watching[peer] = stored.version
        self._counts.sent += 1
        self._counts.sent_bytes += stored.length
        peer.send_shared(stored.header, stored.block, stored.length, partial(self._on_return, stored))
        return True

    def _on_return(self, stored: BufferedSnapshot) -> None:
        self._snapshots.give_back(stored)
        if self._blocked:
            self._listener.wake()

    def _notice(self, peer: Peer, wanted: Version, latest: Version) -> None:
        if latest.newer_than(wanted):
            self._watching.pop(peer, None)
            self._counts.notices += 1
            peer.send(Header(protocol.NOTICE, version=latest.number, body=protocol.encode(latest)))

    def counts(self) -> dict[str, float]:
        """Counters for the metrics."""
        return {
            **asdict(self._counts),
            "version": self.version,
            "readers": len(self._listener.peers),
            "waiting": len(self._fetching),
            "lent": self._snapshots.lent,
            "retired": self._snapshots.retired,
            "memory_bytes": self._snapshots.memory,
            "refused": self._listener.counts.refused,
        }

    def close(self) -> None:
        """Stop serving. Readers keep what they have."""
        with self._publishing:
            self._closed = True
            self._listener.wake()
            self._thread.join(_CLOSE_TIMEOUT)
            if self._thread.is_alive():
                log.warning("the thread that serves parameters did not end within %.0f s", _CLOSE_TIMEOUT)
                return  # keep its memory: it may be in use
            self._snapshots.close()
            self._context.data_plane_metrics.untrack(self.counts)
