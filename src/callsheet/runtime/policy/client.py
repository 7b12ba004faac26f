"""The requesting side: one request at a time per lane, so that some environments step while others wait."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from callsheet.errors import CallsheetError, UserError
from callsheet.runtime import limits
from callsheet.runtime.context import Closeable, Context
from callsheet.runtime.link.blocks import Block
from callsheet.runtime.link.frame import Frame
from callsheet.runtime.link.link import Link, TimedOut
from callsheet.runtime.link.protocol import BadMessage, Header, Welcome
from callsheet.runtime.policy import protocol
from callsheet.runtime.schema import Field, FrameLayout, Schema
from callsheet.runtime.stop import Deadline


class PolicyFailed(CallsheetError):
    """The policy server could not answer this request; it may answer the next one."""


@dataclass(frozen=True, slots=True)
class Actions:
    """An answer: arrays `[environments, ...]`."""

    arrays: dict[str, np.ndarray] = field(repr=False)
    version: int
    """Version of the policy that answered."""
    incarnation: int
    """The server's incarnation; a restarted server begins with initial states."""


class Ticket(NamedTuple):
    """A request in flight."""

    lane: int
    sequence: int


@dataclass(eq=False, slots=True)
class _Lane:
    number: int
    sequence: int = 0
    asked: float = 0.0
    open: bool = False
    """Whether the last request has no answer yet."""
    late: bool = False
    """Whether a wait for that answer timed out."""
    frame: Frame | None = None
    received: dict[str, np.ndarray] = field(default_factory=dict)
    """The arrays of that frame."""
    incarnation: int = 0
    failure: str = ""
    count: int = 0
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    views: dict[int, tuple[object, FrameLayout, dict[str, np.ndarray]]] = field(default_factory=dict)
    answers: dict[str, np.ndarray] = field(default_factory=dict)


class PolicyClient(Closeable):
    """Requests actions from a policy server. Use it from one thread at a time.

    Observations and answers are arrays `[environments, ...]`::

        with Context.from_env() as ctx, PolicyClient(ctx, "policy") as client:
            observations, _ = envs.reset()
            while not ctx.stopping:
                actions = client.act({"obs": observations})
                observations, *_ = envs.step(actions.arrays["action"])

    To step one half of the environments while the other half waits, use two lanes::

        tickets = [client.submit({"obs": observations[half]}, lane=half) for half in (0, 1)]
        while not ctx.stopping:
            for half in (0, 1):
                actions = client.result(tickets[half])
                observations[half], *_ = envs[half].step(actions.arrays["action"])
                tickets[half] = client.submit({"obs": observations[half]}, lane=half)

    The client reuses its arrays for the lane's next answer. With a recurrent policy the server keeps a state for each
    environment of each lane; `reset` tells which environments start a new episode.

    If the connection breaks, open requests are resent to the next server; a server that has already answered one repeats
    the answer. After a `TimedOut` you can wait for the same ticket again; a new request in that lane discards the old one.
    """

    def __init__(
        self, context: Context, endpoint: str, *, schema: Schema | None = None, connect_to: str | None = None
    ) -> None:
        self._link = Link(
            context,
            endpoint,
            protocol.SERVICE,
            schema=schema,
            address=connect_to or "",
            blocks=2 * protocol.MAX_LANES,
            on_connect=self._on_connect,
            on_data=self._on_data,
            piggyback_releases=True,
        )
        self._schema = schema
        self._server_info: protocol.ServerInfo | None = None
        self._answers: Schema | None = None
        self._lanes = [_Lane(number) for number in range(protocol.MAX_LANES)]
        self._requests = 0
        self._failures = 0
        metrics = context.data_plane_metrics.track("PolicyClient", endpoint, self.counts)
        self._wait_seconds = metrics.wait_seconds

    @property
    def shared_memory(self) -> bool | None:
        """Whether shared memory is used; None while disconnected."""
        return self._link.shared_memory

    def act(
        self, arrays: Mapping[str, np.ndarray], reset: np.ndarray | None = None, timeout: float | None = None
    ) -> Actions:
        """Send a request and wait for the answer."""
        deadline = Deadline(timeout)
        ticket = self._submit(arrays, reset, 0, deadline)
        return self._result(ticket, deadline)

    def submit(
        self,
        arrays: Mapping[str, np.ndarray],
        reset: np.ndarray | None = None,
        *,
        lane: int = 0,
        timeout: float | None = None,
    ) -> Ticket:
        """Send a request; get the answer later with `result`. Each lane has one request at a time."""
        return self._submit(
            arrays, reset, limits.integer("lane", lane, 0, protocol.MAX_LANES - 1), Deadline(timeout)
        )

    def _submit(
        self, arrays: Mapping[str, np.ndarray], reset: np.ndarray | None, lane: int, deadline: Deadline
    ) -> Ticket:
        current = self._lanes[lane]
        if current.open and not current.late:
            raise UserError(
                f"lane {lane} already waits for an answer", fix="take it with result(), or use another lane"
            )
        if self._server_info is None:
            self._first_connect(arrays, deadline.timeout)
        count = self._check(current, arrays)
        body = protocol.LANES[lane]
        if reset is not None:
            body += _encode_reset(reset, count)
        schema = self._schema
        assert schema is not None
        layout = schema.layout(count)
        block = self._link.reserve(layout.nbytes, deadline.timeout)
        for name, view in self._views(current, block, layout).items():
            np.copyto(view, arrays[name])
        self._discard_answer(current)
        current.sequence += 1
        current.open, current.late, current.asked = True, False, time.monotonic()
        header = Header(protocol.REQUEST, schema.hash, count, current.sequence, 0, (), body)
        self._link.post(header, block, layout.nbytes)
        self._requests += count
        return Ticket(lane, current.sequence)

    def result(self, ticket: Ticket, timeout: float | None = None) -> Actions:
        """Wait for the answer to a request."""
        return self._result(ticket, Deadline(timeout))

    def _result(self, ticket: Ticket, deadline: Deadline) -> Actions:
        lane = self._lanes[ticket.lane]
        if ticket.sequence != lane.sequence or not (lane.open or lane.frame or lane.failure):
            raise UserError(f"{ticket} was already answered or discarded", fix="take each answer once")
        try:
            while lane.open:
                self._link.wait(deadline)
        except TimedOut:
            lane.late = True
            raise
        if lane.failure:
            failure, lane.failure = lane.failure, ""
            raise PolicyFailed(
                f"the policy at {self._link.address} failed: {failure}", fix="see the server's log"
            )
        frame, lane.frame = lane.frame, None
        assert frame is not None
        received, lane.received = lane.received, {}
        answers = lane.answers
        for name, value in received.items():
            mine = answers.get(name)
            if mine is None or mine.shape != value.shape or mine.dtype != value.dtype:
                answers = lane.answers = {name: np.empty_like(value) for name, value in received.items()}
                break
        for name, value in received.items():
            np.copyto(answers[name], value)
        frame.release()
        return Actions(answers, frame.header.version, lane.incarnation)

    def _first_connect(self, arrays: Mapping[str, np.ndarray], timeout: float | None) -> None:
        """Before the first request: derive the schema, and connect."""
        if self._schema is None:
            items = {}
            for name, value in arrays.items():
                array = np.asarray(value)
                if not array.ndim or not len(array):
                    raise UserError(
                        f"array {name!r} has the shape {list(array.shape)}",
                        fix="observations are arrays [environments, ...], even for one environment",
                    )
                items[name] = array[0]
            self._schema = Schema.of(items)
            self._link.set_schema(self._schema)
        self._link.connect(timeout)

    def _check(self, lane: _Lane, arrays: Mapping[str, np.ndarray]) -> int:
        """Check the observations against the schema; return the number of environments."""
        schema, server_info = self._schema, self._server_info
        assert schema is not None
        assert server_info is not None
        shapes = lane.shapes
        for spec in schema.fields:
            array = arrays.get(spec.name)
            if (
                not isinstance(array, np.ndarray)
                or array.shape != shapes.get(spec.name)
                or array.dtype != spec.dtype
            ):
                break
        else:
            if len(arrays) == len(shapes):
                return lane.count
        observations = {name: np.asarray(value) for name, value in arrays.items()}
        first = next(iter(observations.values())) if observations else np.zeros(())
        count = len(first) if first.ndim else 0
        if not 0 < count <= server_info.max_batch:
            raise UserError(
                f"a request of {count} observations",
                fix=f"send 1 to {server_info.max_batch} observations",
            )
        Schema(tuple(Field(spec.name, spec.dtype, (count, *spec.shape)) for spec in schema.fields)).check(
            observations
        )
        lane.shapes = {name: array.shape for name, array in observations.items()}
        lane.count = count
        return count

    def _views(self, lane: _Lane, block: Block, layout: FrameLayout) -> dict[str, np.ndarray]:
        cached = lane.views.get(block.index)
        if cached is None or cached[0] is not block.memory or cached[1] is not layout:
            cached = lane.views[block.index] = (block.memory, layout, layout.views(block.view))
        return cached[2]

    def _discard_answer(self, lane: _Lane) -> None:
        """Drop the answer to the lane's last request."""
        if lane.frame is not None:
            lane.frame.release()
            lane.frame = None
        lane.failure = ""

    def _on_connect(self, welcome: Welcome) -> None:
        self._server_info = protocol.decode_server_info(welcome.body)
        for lane in self._lanes:
            lane.shapes = {}  # another server may accept smaller requests
        try:
            answers = Schema.decode(self._server_info.answer_schema)
        except ValueError as error:
            raise BadMessage(str(error)) from None
        if self._answers is None or answers.hash != self._answers.hash:
            self._answers = answers

    def _on_data(self, frame: Frame) -> None:
        header = frame.header
        if not header.body or header.body[0] >= protocol.MAX_LANES or self._answers is None:
            raise BadMessage(f"an answer with {len(header.body)} bytes")
        lane = self._lanes[header.body[0]]
        if header.sequence != lane.sequence or not lane.open:
            frame.release()  # discarded, or answered twice
            return
        if header.verb == protocol.ANSWER:
            lane.received = frame.arrays(self._answers)
            lane.frame = frame
            lane.incarnation = self._server_info.incarnation if self._server_info else 0
        elif header.verb == protocol.FAILURE:
            lane.failure = header.body[1:].decode(errors="replace") or "unknown"
            self._failures += 1
        else:
            raise BadMessage(f"the word {header.verb}")
        lane.open = False
        self._wait_seconds.observe(time.monotonic() - lane.asked)

    def counts(self) -> dict[str, float]:
        """Counters for the metrics."""
        link = self._link.counts
        return {
            "requests": self._requests,
            "failures": self._failures,
            "retries": link.resent,
            "connects": link.connects,
        }

    def close(self) -> None:
        """Close the connection."""
        self._link.close()
        self._link.context.data_plane_metrics.untrack(self.counts)


def _encode_reset(reset: np.ndarray, count: int) -> bytes:
    flags = np.asarray(reset)
    if flags.shape != (count,) or flags.dtype != np.bool_:
        raise UserError(
            f"reset is {flags.dtype.name}{list(flags.shape)}",
            fix=f"pass one boolean per environment: bool[{count}]",
        )
    return flags.tobytes() if flags.any() else b""
