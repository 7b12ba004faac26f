"""One shard, as those see it who sample: how much it has, what was asked of it, and what has come."""

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

_UNHEARD = 16 * 1024
"""Bytes of priorities after which the shard is asked whether it still listens."""
_MOST_UNHEARD = 2
"""Questions that may be open before the next priorities wait."""


@dataclass(slots=True)
class Reply:
    """Items that have come."""

    frame: Frame
    arrays: dict[str, NDArray[np.generic]]
    resets: int
    """How often the shard had been connected then."""

    def copy(self) -> None:
        """Have the items here, and give the shard its memory back."""
        for name, array in self.arrays.items():
            self.arrays[name] = mine = array.copy()
            mine.flags.writeable = False
        self.frame.release()


class Source:
    """A shard. Nothing here waits but where it says so."""

    def __init__(self, context: Context, endpoint: str, table: str, address: str, number: int) -> None:
        self.number = number
        """Its place among the shards: the upper bits of a key."""
        self.state = protocol.State(0, 0.0)
        self.items: Schema | None = None
        self.gives: Schema | None = None
        self.window = 1
        self.resets = 0
        """How often it was connected: what was asked before the last time is lost."""
        self.replies: dict[int, Reply] = {}
        """What has come, by the numbers of the requests. It stays good when the connection breaks."""
        self._asked = 0
        self._open = 0
        """Requests without an answer."""
        self._said = 0
        self._questions = 0
        body = protocol.encode(protocol.Want(protocol.TO_SAMPLE, table))
        self.link = Link(
            context,
            endpoint,
            protocol.SERVICE,
            address=address,
            on_connect=self._up,
            hello_body=lambda: body,
            on_data=self._data,
        )

    @property
    def up(self) -> bool:
        """Whether there is a connection now."""
        return self.link.shared_memory is not None

    def ask(self, count: int, done: Reply | None = None) -> int | None:
        """Ask for items; the request's number, or None when there is no connection. A reply that is done with is given
        back in the same message."""
        if self._open >= protocol.MOST_ASKED:  # parts of many batches whose own shards are gone: some later
            if done is not None:
                done.frame.release()
            return None
        self._asked += 1
        header, released = Header(protocol.SAMPLE, 0, count, self._asked), NO_BLOCK
        if done is not None and done.resets == self.resets:
            released, done.frame.block = done.frame.block, NO_BLOCK
        if not self.link.send(header, released):
            return None
        self._open += 1
        return self._asked

    def update(self, keys: NDArray[np.uint64], priorities: NDArray[np.float32], deadline: Deadline) -> bool:
        """Send priorities on their way; whether there was a connection. Waits while the shard does not listen."""
        while self.up and self._questions >= _MOST_UNHEARD:
            self.link.wait(deadline)
        body = protocol.encode_update(keys, priorities)
        if not self.link.send(Header(protocol.UPDATE, 0, len(keys), body=body)):
            return False
        self._said += len(body)
        if self._said > _UNHEARD:
            self._said = 0
            self._questions += 1
            self.link.send(Header(protocol.STATE))
        return True

    @property
    def _lent(self) -> int:
        """Replies that lie in the shard's memory; the caller may have one more."""
        now = self.resets
        return sum(one.resets == now and one.frame.block != NO_BLOCK for one in self.replies.values())

    def ready(self, number: int) -> bool:
        """Whether the answer to a request is there."""
        return number in self.replies

    def close(self) -> None:
        """End the connection."""
        self.replies.clear()
        self.link.close()

    def _up(self, welcome: Welcome) -> None:
        self.resets += 1
        self.window = welcome.window
        self._said = self._questions = self._open = 0
        self._learn(protocol.state_of(welcome.body))

    def _learn(self, state: protocol.State) -> None:
        if state.schema:
            try:
                self.items = Schema.decode(state.schema)
            except ValueError as error:
                raise BadMessage(str(error)) from None
            self.gives = reply_schema(self.items)
        self.state = state

    def _data(self, frame: Frame) -> None:
        if frame.header.verb == protocol.SAMPLE:
            self._learn(protocol.state_of(frame.header.body))
            if self.gives is None:
                raise BadMessage("items that were not announced")
            self._open = max(0, self._open - 1)
            reply = Reply(frame, frame.arrays(self.gives), self.resets)
            if self._open and self._lent >= self.window - 2:
                # More was asked for than the shard has memory for, in place of one that is gone. What is held here
                # waits for what is still to come: without room for that, both would wait for ever.
                reply.copy()
            self.replies[frame.header.sequence] = reply
            self._questions = self._said = 0
        elif frame.header.verb == protocol.STATE:
            self._learn(protocol.state_of(frame.header.body))
            self._questions = max(0, self._questions - 1)
