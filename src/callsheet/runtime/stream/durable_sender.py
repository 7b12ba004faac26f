"""A sender that keeps its items until they are durable at the receiver, and resends them to a restarted one."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from callsheet.errors import UserError
from callsheet.runtime import limits
from callsheet.runtime.context import Context
from callsheet.runtime.link import protocol as m
from callsheet.runtime.link.link import TimedOut
from callsheet.runtime.schema import Schema
from callsheet.runtime.stop import Deadline
from callsheet.runtime.stream.delivery_log import MAX_SEQUENCE, Acknowledgement, decode_acknowledgement
from callsheet.runtime.stream.packing import ItemViews
from callsheet.runtime.stream.retransmit_buffer import Chunk, RetransmitBuffer
from callsheet.runtime.stream.sender import StreamSender

log = logging.getLogger("callsheet.runtime")
_LOG_AFTER = 5.0
_LOG_EVERY = 60.0
_RECEIVER_TIMEOUT = 5.0
"""Seconds that a stopping process waits for a receiver that is gone, unless the caller set a timeout."""


class DurableSender(StreamSender):
    """Builds frames in a ring buffer, sends them from there, and keeps them until they are durable."""

    def __init__(
        self,
        context: Context,
        endpoint: str,
        service: str,
        *,
        schema: Schema | None = None,
        address: str = "",
        window: int = 4,
        ahead: int | None = None,
        keep: int,
    ) -> None:
        keep = limits.integer("keep", keep, 1)
        try:
            self._buffer = RetransmitBuffer(keep)
        except (OSError, OverflowError):
            raise UserError(
                f"this machine cannot allocate keep={keep:,} bytes", fix="keep fewer bytes"
            ) from None
        self._unsent: deque[Chunk] = deque()
        self._chunk: Chunk | None = None
        self._scratch: dict[str, np.ndarray] = {}
        super().__init__(
            context, endpoint, service, schema=schema, address=address, window=window, ahead=ahead
        )

    @property
    def kept(self) -> int:
        """Bytes that are not durable yet."""
        return self._buffer.used

    def counts(self) -> dict[str, float]:
        """Counters for the metrics; `kept` are the bytes that are not durable yet."""
        return {**super().counts(), "kept": self.kept}

    @contextmanager
    def fill(self, version: int = 0, timeout: float | None = None) -> Iterator[dict[str, np.ndarray]]:
        """Arrays of one item to fill. The item is sent at the end of the block, unless it raises."""
        with self._lock:
            limits.integer("version", version, 0, MAX_SEQUENCE)
            packer = self._ready({}, timeout)
        scratch, self._scratch = self._scratch, {}
        if not scratch:
            memory = memoryview(bytearray(packer.schema.layout(1).nbytes))
            scratch = {name: array[0] for name, array in packer.schema.layout(1).views(memory).items()}
        yield scratch
        self.put(scratch, version, timeout)
        self._scratch = scratch

    def _frame_bytes(self) -> int:
        return min(super()._frame_bytes(), self._buffer.size // 8)

    def _set_schema(self, schema: Schema) -> None:
        super()._set_schema(schema)
        assert self.packer is not None
        if self.packer.nbytes > self._buffer.size:
            raise UserError(
                f"an item has {self.packer.nbytes:,} bytes, and {self._buffer.size:,} may be kept",
                fix="pass a larger keep= to the writer",
            )

    def _open_frame_views(self, timeout: float | None) -> ItemViews:
        assert self.packer is not None
        deadline, begun, logged_at = Deadline(timeout), time.monotonic(), 0.0
        while (chunk := None if self._exceeds_ahead() else self._buffer.add(self.packer.nbytes)) is None:
            self._send_pending()
            try:
                self._wait(deadline)
            except TimedOut:
                if self._exceeds_ahead():
                    raise
                raise TimedOut(
                    f"{self.endpoint}: {self.kept:,} bytes wait for the reader to make them durable",
                    fix="call durable() on the reader more often, or let the writer keep more",
                ) from None
            now = time.monotonic()
            if now - begun > _LOG_AFTER and now - logged_at > _LOG_EVERY:
                logged_at = now
                log.warning(
                    "%s: waiting for the reader to make its items durable: %s bytes are kept",
                    self.endpoint,
                    f"{self.kept:,}",
                )
        self._chunk = chunk
        return self.packer.views(self._buffer.view(chunk))

    def _exceeds_ahead(self) -> bool:
        assert self.packer is not None
        return self.ahead is not None and self._undelivered() + self.packer.capacity > self.ahead

    def _send_frame(self, count: int) -> None:
        assert self.packer is not None
        assert self._chunk is not None
        chunk, self._chunk = self._chunk, None
        chunk.length = self.packer.compact(self._buffer.view(chunk), count)
        chunk.first, chunk.count, chunk.version = self._first, count, self._version
        self._buffer.trim(chunk)
        self._unsent.append(chunk)
        self._send_pending()

    def _send_pending(self) -> None:
        while self._unsent and self.packer is not None and self.link.connected:
            block = self.link.try_reserve(self.packer.nbytes)
            if block is None:
                return
            if not self._unsent:  # an acknowledgement just arrived: everything is durable
                self.link.cancel(block)
                return
            chunk = self._unsent.popleft()
            block.view[: chunk.length] = self._buffer.view(chunk)[: chunk.length]
            self.link.post(self._header(chunk.count, chunk.first, chunk.version), block, chunk.length)

    def _on_connect(self, welcome: m.Welcome) -> None:
        acknowledgement = decode_acknowledgement(welcome.body)
        self._on_acknowledgement(acknowledgement)
        self.link.discard_in_flight()
        self._limit_cached_bytes()
        self._unsent = deque(
            chunk for chunk in self._buffer.chunks if chunk.count and chunk.last > acknowledgement.consumed
        )

    def _on_acknowledgement(self, acknowledgement: Acknowledgement) -> None:
        super()._on_acknowledgement(acknowledgement)
        self._buffer.discard_up_to(self.durable)
        while self._unsent and self._unsent[0].last <= self.durable:
            self._unsent.popleft()

    def _wait_for_receiver(self, timeout: float | None) -> float:
        """Items here cannot be recreated, so use the whole timeout if there is one."""
        return _RECEIVER_TIMEOUT if timeout is None else timeout

    def _delivered(self) -> bool:
        return not self._unsent and not self.link.in_flight

    def _undelivered(self) -> int:
        return super()._undelivered() + sum(chunk.count for chunk in self._unsent)

    def _release_resources(self) -> None:
        super()._release_resources()
        self._unsent.clear()
        self._buffer.close()
