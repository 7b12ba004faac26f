"""The answering side: collects requests until a batch is full or has waited long enough, then makes one call."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from callsheet.errors import UserError
from callsheet.runtime import limits
from callsheet.runtime.context import Closeable, Context, new_incarnation
from callsheet.runtime.link.endpoint_handler import EndpointHandler, RefuseLink
from callsheet.runtime.link.frame import Frame
from callsheet.runtime.link.listener import Listener
from callsheet.runtime.link.peer import Peer
from callsheet.runtime.link.protocol import BadMessage, Header, Hello
from callsheet.runtime.policy import protocol
from callsheet.runtime.policy.batch import Request, RequestBatch, check_output
from callsheet.runtime.policy.client_states import (
    ClientRecord,
    ClientRegistry,
    Lane,
    RecurrentStates,
    StatesFull,
)
from callsheet.runtime.schema import Schema
from callsheet.runtime.stop import Deadline, Stopping

log = logging.getLogger("callsheet.runtime")


@dataclass
class _ServerStats:
    requests: int = 0
    """Observations that were answered."""
    messages: int = 0
    batches: int = 0
    failures: int = 0
    answered_again: int = 0


class PolicyServer(Closeable):
    """Answers the observations of many simulators with one function call for many of them.

    `function` gets the observations as arrays `[rows, ...]` and returns the answers, also `[rows, ...]`. A batch is
    answered when it is full, when its first request has waited for `max_wait` seconds, or when every connected client
    waits for an answer::

        def act(observations):
            return {"action": np.argmax(observations["obs"] @ weights, axis=1)}

        with Context.from_env() as ctx:
            server = PolicyServer(ctx, "policy", act, max_batch=256,
                schema_in=Schema.of({"obs": np.zeros(4, "f4")}), schema_out=Schema.of({"action": np.int64(0)}))
            server.serve()

    With `state`, the initial state of one environment, the function gets the states as its second argument and returns
    answers and new states. The server keeps them, by client and lane, while the client is there; a restarted server begins
    with initial states, which clients recognize by the answers' `incarnation`.

    `version` is part of every answer; set it when the policy changes, between two calls of `step` or in the function. If
    the function raises, the clients in the batch get the error; after `max_failures` in a row the server raises it.
    """

    def __init__(
        self,
        context: Context,
        endpoint: str,
        function: Callable[..., Any],
        *,
        max_batch: int,
        schema_in: Schema,
        schema_out: Schema,
        max_wait: float = 0.002,
        state: Mapping[str, object] | None = None,
        max_failures: int = 10,
    ) -> None:
        for schema, which in ((schema_in, "schema_in"), (schema_out, "schema_out")):
            if not schema.fixed:
                raise UserError(
                    f"{which} has axes of variable length: {schema}", fix="set a fixed length for every axis"
                )
        max_batch = limits.integer("max_batch", max_batch, 1)
        for schema, which in ((schema_in, "observations"), (schema_out, "answers")):
            size = schema.layout(max_batch).nbytes
            if size > protocol.MAX_REQUEST_BYTES:
                raise UserError(
                    f"max_batch is {max_batch}, whose {which} have {size:,} bytes, but a message holds at most "
                    f"{protocol.MAX_REQUEST_BYTES:,}",
                    fix=f"choose max_batch={protocol.MAX_REQUEST_BYTES // schema.layout(1).nbytes} or less",
                )
        limits.seconds("max_wait", max_wait, endless="float('inf') to wait until all clients have asked")
        max_failures = limits.integer("max_failures", max_failures, 1)
        self.version = 0
        self.max_wait = max_wait
        self.max_failures = max_failures
        self.incarnation = new_incarnation()
        self._function = function
        self._in, self._out = schema_in, schema_out
        self._states = RecurrentStates(state, schema_out) if state else None
        self._clients = ClientRegistry(self._states)
        self._batch = RequestBatch(max_batch, schema_in, self._states)
        self._waiting: deque[Frame] = deque()
        self._waiting_peers: set[Peer] = set()
        self._counts = _ServerStats()
        self._failures = 0
        self._logged_failures: set[str] = set()
        self._expired_at = time.monotonic()
        self._context = context
        self._listener = Listener(
            context,
            endpoint,
            EndpointHandler(protocol.SERVICE, self._accept, self._on_disconnect, lambda: schema_in),
            window=2 * protocol.MAX_LANES,
        )
        metrics = context.data_plane_metrics.track("PolicyServer", endpoint, self.counts)
        self._batch_size, self._wait_seconds = metrics.batch_size, metrics.wait_seconds
        self._call_seconds = metrics.call_seconds

    @property
    def address(self) -> str:
        """The address it listens on."""
        return self._listener.address

    def serve(self) -> None:
        """Answer until the process should stop; ends with `Stopping`."""
        while True:
            self.step()

    def step(self, timeout: float | None = None) -> int:
        """Wait for a batch and answer it; return its number of observations, 0 at the timeout."""
        self._context.stop.check()
        self._gather(Deadline(timeout))
        rows = self._batch.rows
        if rows:
            try:
                self._answer_batch()
            finally:
                self._batch.clear()
                self._waiting_peers.clear()
        self._expire_clients()
        return rows

    def _gather(self, deadline: Deadline) -> None:
        """Fill the batch until it is time to answer it."""
        batch, waiting = self._batch, self._waiting
        while True:
            deferred = [frame for frame in waiting if not self._add_request(frame)]
            waiting.clear()
            waiting.extend(deferred)
            if batch.rows:
                left = batch.begun + self.max_wait - time.monotonic()
                everyone = len(self._waiting_peers) >= self._clients.connected
                if deferred or everyone or left <= 0 or batch.rows >= batch.limit:
                    return
            elif deadline.passed:
                return
            else:
                left = deadline.left()
            waiting.extend(self._listener.poll(left))

    def _add_request(self, frame: Frame) -> bool:
        """Add a request to the batch, or refuse it; False if it must wait for the next batch."""
        peer, header, batch = frame.peer, frame.header, self._batch
        if not peer.alive:
            return True  # the client resends it on its next connection
        try:
            number, reset = _parse_request(header)
            if header.count > batch.limit:
                self._send_failure(
                    frame, number, f"{header.count} observations, and a batch takes {batch.limit}"
                )
                return True
            client = peer.state or self._connect_client(peer)
            lane = client.lane(number)
            if self._states is not None:
                if header.sequence <= lane.sequence:
                    self._repeat_answer(frame, lane, number)
                    return True
                if lane.busy:
                    return False
            if batch.rows + header.count > batch.limit:
                return False
            arrays = frame.arrays(self._in)
        except BadMessage as error:
            self._listener.protocol_error(peer, str(error))
            return True
        if self._states is not None:
            problem = self._assign_states(lane, number, header.count)
            if problem:
                self._send_failure(frame, number, problem)
                return True
            lane.busy = True
        self._waiting_peers.add(peer)
        batch.add(Request(frame, lane, number, batch.rows, header.count), arrays, reset)
        return True

    def _connect_client(self, peer: Peer) -> ClientRecord:
        peer.state = client = self._clients.connect(peer.name, peer.incarnation)
        return client

    def _assign_states(self, lane: Lane, number: int, count: int) -> str:
        """Allocate states for a lane's environments; return the problem, if any."""
        while lane.slots is None and self._states is not None:
            try:
                lane.slots = self._states.allocate(count)
            except StatesFull as error:
                if not self._clients.evict_disconnected():
                    return str(error)
        if lane.slots is not None and len(lane.slots) != count:
            return f"lane {number} has {len(lane.slots)} environments, and this request {count}"
        return ""

    def _answer_batch(self) -> None:
        batch = self._batch
        begun = time.monotonic()
        try:
            answers, states = self._call()
            version = limits.integer("version", self.version, 0, limits.MAX_VERSION)
        except Stopping:
            raise
        except Exception as error:
            self._failures += 1
            why = f"{type(error).__name__}: {error}"
            if why not in self._logged_failures and len(self._logged_failures) < 100:
                self._logged_failures.add(why)
                log.exception("the policy function failed; the clients get the error")
            self._report_failure(error, why)
            return
        self._call_seconds.observe(time.monotonic() - begun)
        self._wait_seconds.observe(begun - batch.begun, len(batch.requests))
        self._batch_size.observe(batch.rows)
        self._failures = 0
        if self._states is not None:
            self._states.store(batch.slots, states, answers)
        counts = self._counts
        counts.batches += 1
        counts.messages += len(batch.requests)
        counts.requests += batch.rows
        for request in batch.requests:
            lane, first, last = request.lane, request.first, request.first + request.count
            lane.sequence, lane.version = request.frame.header.sequence, version
            self._answer(request.frame, request.number, answers, first, last, version)

    def _call(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        batch = self._batch
        if self._states is None:
            return check_output(self._function(batch.observations), self._out, batch.rows, "answers"), {}
        output = self._function(batch.observations, batch.states())
        if not isinstance(output, tuple) or len(output) != 2:
            raise UserError(
                f"the policy returned {type(output).__name__}",
                fix="with a state, return two dictionaries: answers and states",
            )
        answers = check_output(output[0], self._out, batch.rows, "answers")
        return answers, check_output(output[1], self._states.schema, batch.rows, "states")

    def _answer(
        self,
        frame: Frame,
        number: int,
        answers: Mapping[str, np.ndarray],
        first: int,
        last: int,
        version: int,
    ) -> None:
        peer: Peer = frame.peer
        count = last - first
        layout = self._out.layout(count)
        block = peer.reserve(layout.nbytes) if peer.alive else None
        if block is None:
            if peer.alive:
                self._listener.protocol_error(peer, "requests and gave no answer back")
            return
        views = peer.state.views_of(block, layout)
        for name, array in answers.items():
            np.copyto(views[name], array[first:last], casting="same_kind")
        frame.release()  # the release travels with the answer
        header = Header(
            protocol.ANSWER, self._out.hash, count, frame.header.sequence, version, (), protocol.LANES[number]
        )
        peer.send(header, block, layout.nbytes)

    def _repeat_answer(self, frame: Frame, lane: Lane, number: int) -> None:
        """Repeat an answer that was lost with the connection."""
        if frame.header.sequence == lane.sequence and lane.slots is not None and self._states is not None:
            self._counts.answered_again += 1
            self._answer(frame, number, self._states.answers(lane.slots), 0, len(lane.slots), lane.version)
        else:
            frame.release()  # the client discarded it long ago

    def _send_failure(self, frame: Frame, number: int, why: str) -> None:
        frame.release()
        text = why.encode()[: protocol.MAX_TEXT_BYTES]
        frame.peer.send(
            Header(protocol.FAILURE, sequence=frame.header.sequence, body=protocol.LANES[number] + text)
        )

    def _report_failure(self, error: Exception, why: str) -> None:
        self._counts.failures += 1
        for request in self._batch.requests:
            self._send_failure(request.frame, request.number, why)
        if self._failures >= self.max_failures:
            self._listener.flush_releases()
            raise error

    def _accept(self, hello: Hello, schema: Schema | None) -> bytes:
        if schema is None or schema.hash != self._in.hash:
            difference = self._in.difference(schema) if schema else "it sends none"
            raise RefuseLink(f"its observations are not those of the policy: {difference}", schema=self._in)
        return protocol.encode(protocol.ServerInfo(self.incarnation, self._out.encoded, self._batch.limit))

    def _on_disconnect(self, peer: Peer) -> None:
        if peer.state is not None:
            self._clients.disconnect(peer.state)

    def _expire_clients(self) -> None:
        now = time.monotonic()
        if now - self._expired_at > 1:
            self._expired_at = now
            self._clients.expire()

    def counts(self) -> dict[str, float]:
        """Counters for the metrics."""
        return {
            **asdict(self._counts),
            "clients": len(self._listener.peers),
            "states": self._states.used if self._states else 0,
            "waiting": len(self._waiting),
            "version": self.version,
            "refused": self._listener.counts.refused,
        }

    def close(self) -> None:
        """Stop answering. Clients wait for the next server."""
        self._listener.close()
        self._context.data_plane_metrics.untrack(self.counts)


def _parse_request(header: Header) -> tuple[int, bytes]:
    """The lane of a request, and which environments' states to reset."""
    body = header.body
    if header.verb != protocol.REQUEST or not body:
        raise BadMessage(f"the word {header.verb} with {len(body)} bytes")
    number, reset = body[0], body[1:]
    if number >= protocol.MAX_LANES or header.count < 1 or (reset and len(reset) != header.count):
        raise BadMessage(f"a request of {header.count} observations in lane {number}, {len(reset)} marks")
    return number, reset
