"""The connection to one shard that is sampled: its state, open requests, and replies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from callsheet.runtime.context import Context
from callsheet.runtime.link.frame import Frame
from callsheet.runtime.link.link import Link
from callsheet.runtime.link.protocol import NO_BLOCK, BadMessage, Header, Welcome
from callsheet.runtime.replay import protocol
from callsheet.runtime.replay.config import reply_schema
from callsheet.runtime.schema import Schema
from callsheet.runtime.stop import Deadline

_QUERY_EVERY_BYTES = 16 * 1024
"""Bytes of priorities after which the shard is asked to confirm that it still reads."""
_MAX_OPEN_QUERIES = 2
"""Open confirmations before further priorities wait."""


@dataclass(slots=True)
class SampleReply:
    """A sample that has arrived."""

    frame: Frame
    arrays: dict[str, NDArray[np.generic]]
    generation: int
    """The connection's generation when it arrived."""

    def copy(self) -> None:
        """Copy the items, and release the shard's memory."""
        for name, array in self.arrays.items():
            self.arrays[name] = mine = array.copy()
            mine.flags.writeable = False
        self.frame.release()


class ShardClient:
    """One shard. No call blocks unless it says so."""

    def __init__(self, context: Context, endpoint: str, table: str, address: str, number: int) -> None:
        self.number = number
        """Its index among the shards: the upper bits of a key."""
        self.state = protocol.TableState(0, 0.0)
        self.item_schema: Schema | None = None
        self.sample_schema: Schema | None = None
        self.window = 1
        self.generation = 0
        """Counts connections: requests of earlier ones are lost."""
        self.replies: dict[int, SampleReply] = {}
        """Replies by request number. They stay valid when the connection breaks."""
        self._last_number = 0
        self._open_requests = 0
        """Requests without an answer."""
        self._unconfirmed_bytes = 0
        self._open_queries = 0
        body = protocol.encode(protocol.TableRequest(protocol.TO_SAMPLE, table))
        self.link = Link(
            context,
            endpoint,
            protocol.SERVICE,
            address=address,
            on_connect=self._on_connect,
            hello_body=lambda: body,
            on_data=self._on_data,
        )

    @property
    def connected(self) -> bool:
        """Whether it is connected."""
        return self.link.connected

    def request(self, count: int, done: SampleReply | None = None) -> int | None:
        """Request items; return the request's number, or None if disconnected. A reply that is no longer needed is
        released in the same message."""
        if self._open_requests >= protocol.MAX_REQUESTS:
            # These are parts of many batches whose own shards are gone: request them later.
            if done is not None:
                done.frame.release()
            return None
        self._last_number += 1
        header, released = Header(protocol.SAMPLE, 0, count, self._last_number), NO_BLOCK
        if done is not None and done.generation == self.generation:
            released, done.frame.block = done.frame.block, NO_BLOCK
        if not self.link.send(header, released):
            return None
        self._open_requests += 1
        return self._last_number

    def update(self, keys: NDArray[np.uint64], priorities: NDArray[np.float32], deadline: Deadline) -> bool:
        """Send priorities; return whether it was connected. Waits while the shard does not read."""
        while self.connected and self._open_queries >= _MAX_OPEN_QUERIES:
            self.link.wait(deadline)
        body = protocol.encode_update(keys, priorities)
        if not self.link.send(Header(protocol.UPDATE, 0, len(keys), body=body)):
            return False
        self._unconfirmed_bytes += len(body)
        if self._unconfirmed_bytes > _QUERY_EVERY_BYTES:
            self._unconfirmed_bytes = 0
            self._open_queries += 1
            self.link.send(Header(protocol.STATE))
        return True

    @property
    def _replies_in_flight(self) -> int:
        """Replies in the shard's memory; the caller may hold one more."""
        current = [reply for reply in self.replies.values() if reply.generation == self.generation]
        return sum(reply.frame.block != NO_BLOCK for reply in current)

    def ready(self, number: int) -> bool:
        """Whether the answer to a request has arrived."""
        return number in self.replies

    def close(self) -> None:
        """Close the connection."""
        self.replies.clear()
        self.link.close()

    def _on_connect(self, welcome: Welcome) -> None:
        self.generation += 1
        self.window = welcome.window
        self._unconfirmed_bytes = self._open_queries = self._open_requests = 0
        self._set_state(protocol.decode_table_state(welcome.body))

    def _set_state(self, state: protocol.TableState) -> None:
        if state.schema:
            try:
                self.item_schema = Schema.decode(state.schema)
            except ValueError as error:
                raise BadMessage(str(error)) from None
            self.sample_schema = reply_schema(self.item_schema)
        self.state = state

    def _on_data(self, frame: Frame) -> None:
        if frame.header.verb == protocol.SAMPLE:
            self._set_state(protocol.decode_table_state(frame.header.body))
            if self.sample_schema is None:
                raise BadMessage("items that were not announced")
            self._open_requests = max(0, self._open_requests - 1)
            reply = SampleReply(frame, frame.arrays(self.sample_schema), self.generation)
            if self._open_requests and self._replies_in_flight >= self.window - 2:
                # More was requested than the shard has blocks for, in place of a shard that is gone. Replies held
                # here wait for others that are still to come: without a free block both sides would wait forever.
                reply.copy()
            self.replies[frame.header.sequence] = reply
            self._open_queries = self._unconfirmed_bytes = 0
        elif frame.header.verb == protocol.STATE:
            self._set_state(protocol.decode_table_state(frame.header.body))
            self._open_queries = max(0, self._open_queries - 1)
