"""The side that binds an endpoint: serves many links, over shared memory or the network, in one loop without threads."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import time
from collections.abc import Iterator
from typing import Any

import zmq

from callsheet.runtime.context import Context
from callsheet.runtime.link import protocol as m
from callsheet.runtime.link.blocks import SHM_AVAILABLE
from callsheet.runtime.link.endpoint_handler import EndpointHandler, ListenerStats, LogThrottle, RefuseLink
from callsheet.runtime.link.frame import Frame, MultipartPayload
from callsheet.runtime.link.peer import LARGE_BLOCK, Peer, PeerIndex
from callsheet.runtime.link.shm_handshake import ShmHandshakeServer, host_identity
from callsheet.runtime.link.transport import (
    Disconnected,
    SendFull,
    ShmTransport,
    ZmqTransport,
    parse,
    receive,
)
from callsheet.runtime.schema import Schema
from callsheet.runtime.stop import Deadline

log = logging.getLogger("callsheet.runtime")
_HOUSEKEEPING_EVERY = 2.0
_CLOSE_LINGER_MS = 500
"""Milliseconds for the last messages to leave when a listener closes."""
_RELEASE_DELAY = 0.001
"""Seconds to collect releases: the peer has other blocks meanwhile, and one message releases many."""
_POLLIN = int(zmq.POLLIN)
_BATCH = 64
"""Data messages to take from one peer, or from the network, before others get their turn."""
_MAX_GRACE = 0.2
"""Seconds one call may spend on new links, however many there are: others wait for the messages received so far."""
_NETWORK_TURN = 0.02
"""Seconds the network gets per turn, so that of a thousand hellos all are heard."""


class Listener:
    """Receives messages from all links of an endpoint. Use it from one thread at a time."""

    def __init__(self, context: Context, endpoint: str, handler: EndpointHandler, *, window: int = 4) -> None:
        self.context = context
        self.endpoint = endpoint
        self.window = window
        self.counts = ListenerStats()
        self.pending_releases: set[Peer] = set()
        self._handler = handler
        self._peers = PeerIndex()
        self._ready: list[Frame] = []
        self._housekept = time.monotonic()
        self._log_throttle = LogThrottle()
        self._recheck = True
        self._interruptible = True
        self._router = context.sockets.listener(endpoint, context.bind(endpoint))
        self.address = (
            bytes(self._router.getsockopt(zmq.LAST_ENDPOINT)).rstrip(b"\0").decode().removeprefix("tcp://")
        )
        self._shm = ShmHandshakeServer() if SHM_AVAILABLE and context.memory else None
        self._poll = select.epoll()
        self._router_fd = int(self._router.getsockopt(zmq.FD))
        self._poll.register(self._router_fd, select.EPOLLIN)
        self._poll.register(context.stop.fd, select.EPOLLIN)
        self._woken = False
        self._wake_fd, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll.register(self._wake_fd, select.EPOLLIN)
        if self._shm:
            self._poll.register(self._shm.socket.fileno(), select.EPOLLIN)
        metrics = context.data_plane_metrics.track("Transport", endpoint, self.measure)
        metrics.keys_refused.follow(lambda: context.sockets.refused)

    def measure(self) -> dict[str, float]:
        """Values for the transport metrics."""
        counts = self.counts
        return {
            "received_memory": counts.bytes_via_shm,
            "received_network": counts.bytes - counts.bytes_via_shm,
            "frames_received": counts.frames,
            "peers": len(self._peers.by_name),
            "refusals": counts.refused,
        }

    @property
    def peers(self) -> list[Peer]:
        """All connected links."""
        return list(self._peers.by_name.values())

    @property
    def link_count(self) -> int:
        """Number of connected links."""
        return len(self._peers.by_name)

    def recheck_socket(self) -> None:
        """Call after using ZeroMQ's socket: its edge-triggered descriptor may have missed an event."""
        self._recheck = True

    def poll(self, timeout: float | None = None) -> list[Frame]:
        """Wait for messages and return them; an empty list at the timeout or after `wake`."""
        if not self._recheck and not (self._shm and self._shm.grace_left() > 0):
            self._poll_once(0.0)  # the fast path of a busy reader
            if self._ready:
                return self._take_ready()
        deadline = Deadline(timeout)
        grace_until = time.monotonic() + _MAX_GRACE
        while True:
            if self._recheck:
                self._receive_network()
            if not self._ready:
                self._recheck = self._recheck or bool(int(self._router.getsockopt(zmq.EVENTS)) & _POLLIN)
            wait = 0.0 if self._ready or self._recheck or self._woken else deadline.left(_HOUSEKEEPING_EVERY)
            grace = self._grace_left(grace_until)
            if grace > 0 and not self._recheck:
                wait = max(wait, grace)
            elif self.pending_releases:
                wait = min(wait, _RELEASE_DELAY)
            if not self._poll_once(wait) and wait:
                self.flush_releases()
            unread = self._recheck and not self._ready and time.monotonic() < grace_until
            if unread or self._grace_left(grace_until) > 0:
                continue
            if self._ready or self._woken:
                return self._take_ready()
            if self._interruptible:
                self.context.stop.check()
            if deadline.passed:
                self.flush_releases()
                return []

    def _grace_left(self, until: float) -> float:
        return min(self._shm.grace_left(), until - time.monotonic()) if self._shm else 0.0

    def _poll_once(self, wait: float) -> bool:
        """Handle events for up to `wait` seconds; return whether there were any."""
        events = self._poll.poll(wait, 64)
        for fd, _ in events:
            self._handle(fd)
        self._housekeeping()
        return bool(events)

    def _take_ready(self) -> list[Frame]:
        frames, self._ready, self._woken = self._ready, [], False
        return frames

    @contextlib.contextmanager
    def ignoring_stop(self) -> Iterator[None]:
        """In this block, waits continue even if the process should stop, to receive what peers still send."""
        self._interruptible = False
        self._poll.unregister(self.context.stop.fd)
        try:
            yield
        finally:
            self._interruptible = True
            self._poll.register(self.context.stop.fd, select.EPOLLIN)

    def wake(self) -> None:
        """Interrupt the thread that polls; may be called from any thread."""
        with contextlib.suppress(OSError):  # full: it will wake up anyway; closed: nobody polls
            os.write(self._waker, b"x")

    def flush_releases(self) -> None:
        """Release every block that is no longer needed."""
        while self.pending_releases:
            self.pending_releases.pop().flush_releases()

    def _handle(self, fd: int) -> None:
        peer = self._peers.by_fd.get(fd)
        if peer is not None:
            self._receive_shm(peer)
        elif fd == self._router_fd:
            self._recheck = True
        elif fd == self._wake_fd:
            self._woken = True
            os.read(fd, 4096)
        elif self._shm and fd == self._shm.socket.fileno():
            for new in self._shm.accept():
                self._poll.register(new, select.EPOLLIN)
        elif self._shm and self._shm.is_pending(fd):
            self._poll.unregister(fd)
            authenticated = self._shm.authenticate(fd)
            if authenticated is None:
                self._count_refusal("shared memory was requested without a welcome")
            else:
                self._upgrade_to_shm(*authenticated)

    def _upgrade_to_shm(self, connection: Any, peer: object) -> None:
        if not isinstance(peer, Peer) or not peer.alive:
            connection.close()
            return
        peer.transport = ShmTransport(connection)
        self._peers.by_fd[peer.transport.fd] = peer
        self._poll.register(peer.transport.fd, select.EPOLLIN)
        peer.end_upgrade()

    def _receive_shm(self, peer: Peer) -> None:
        transport = peer.transport
        if not isinstance(transport, ShmTransport):
            return
        try:
            for _ in range(_BATCH):
                received = transport.receive()
                if received is None:
                    return
                self._on_message(peer, *received)
        except Disconnected:
            self.counts.lost += 1
            self.disconnect(peer)
        except m.BadMessage as error:
            self.protocol_error(peer, str(error))

    def _receive_network(self) -> None:
        deadline, limit = time.monotonic() + _NETWORK_TURN, len(self._ready) + _BATCH
        while len(self._ready) < limit and time.monotonic() < deadline:
            try:
                parts = receive(self._router)
            except zmq.Again:
                self._recheck = False
                return
            route = bytes(parts[0].buffer)
            peer = self._peers.by_route.get(route)
            try:
                message, payload, kind, block, released = parse(parts[1:])
                if kind == m.HELLO:
                    self._on_hello(route, m.decode_hello(message))
                elif peer is None:
                    self._answer(route, m.encode(m.REFUSAL, m.Refusal("say hello first", retryable=True)))
                elif peer.transport.shared_memory:
                    if kind != m.KEEPALIVE:  # it may have been sent while the link waited for the upgrade
                        raise m.BadMessage("a message by the network after it went to memory")
                else:
                    if peer.upgrading and not (
                        kind == m.KEEPALIVE and self._shm and self._shm.is_valid(peer.token)
                    ):
                        peer.end_upgrade()  # it stays with the network
                    self._on_message(peer, message, payload, kind, block, released)
            except m.BadMessage as error:
                if peer is not None:
                    self.protocol_error(peer, str(error))
                else:
                    self._count_refusal(f"a message that is none of ours: {error}")

    def _on_message(
        self,
        peer: Peer,
        message: bytes | memoryview,
        payload: memoryview | MultipartPayload,
        kind: int,
        block: int,
        released: int,
    ) -> None:
        if released != m.NO_BLOCK:
            peer.block_returned(released)
        if kind == m.RELEASE:
            for index in m.decode_release(message):
                peer.block_returned(index)
        elif kind == m.DATA:
            if block != m.NO_BLOCK:
                peer.unreleased += 1
                if peer.unreleased > self.window:
                    raise m.BadMessage(f"more than the {self.window} frames that may be on their way")
            release = peer.queue_release if len(payload) < LARGE_BLOCK else peer.retain_large()
            frame = Frame(m.decode_header(message), payload, block, peer, release)
            if len(payload):
                if peer.schema is None:
                    raise m.BadMessage("arrays from a link that announced none")
                self.counts.bytes += len(payload)
                if peer.transport.shared_memory:
                    self.counts.bytes_via_shm += len(payload)
            self.counts.frames += 1
            self._ready.append(frame)
        elif kind != m.KEEPALIVE:
            raise m.BadMessage(f"kind {kind} from a link")

    def _on_hello(self, route: bytes, hello: m.Hello) -> None:
        self.counts.hellos += 1
        try:
            schema = self._check_hello(hello)
            body = self._handler.accept(hello, schema)
        except RefuseLink as refused:
            self._count_refusal(f"{hello.name}: {refused.reason}")
            schema_hint = refused.schema.encoded if refused.schema else b""
            refusal = m.Refusal(refused.reason[: m.MAX_REASON], refused.retryable, schema_hint)
            self._answer(route, m.encode(m.REFUSAL, refusal))
            return
        peer = Peer(self, hello, schema, ZmqTransport(self._router, route), route)
        expected_schema = self._handler.expected_schema()
        welcome = m.Welcome(m.PROTOCOL, self.context.incarnation, self.window, body=body)
        welcome.schema = expected_schema.encoded if expected_schema else b""
        if self._shm is not None and hello.host == host_identity() != "":
            welcome.socket, welcome.token = self._shm.name, self._shm.issue_token(peer)
            peer.token, peer.upgrading = welcome.token, True
        if not self._answer(route, m.encode(m.WELCOME, welcome)):
            self._close_peer(peer)  # it gave up and is gone; its next attempt may be here already
            return
        # One connection is one link: under a new name, the old one is gone.
        for old in (self._peers.by_name.get(hello.name), self._peers.by_route.get(route)):
            if old is not None:
                self.disconnect(old)
        self._peers.by_name[hello.name] = self._peers.by_route[route] = peer

    def _check_hello(self, hello: m.Hello) -> Schema | None:
        old = self._peers.by_name.get(hello.name)
        if old is not None and old.incarnation > hello.incarnation and old.transport.shared_memory:
            raise RefuseLink(f"a later start of {hello.name} is connected already", retryable=True)
        return self._handler.check(hello, self.context.run, self.endpoint)

    def _answer(self, route: bytes, message: bytes) -> bool:
        self._recheck = True
        try:
            self._router.send_multipart([route, message], zmq.NOBLOCK)
        except zmq.ZMQError:
            return False  # already gone
        return True

    def _count_refusal(self, why: str) -> None:
        self.counts.refused += 1
        if self._log_throttle.should_log(why):
            log.warning("endpoint %s refused a link: %s", self.endpoint, why[: m.MAX_REASON])

    def protocol_error(self, peer: Peer, why: str) -> None:
        """End a link that violated the protocol. It may reconnect, and is told the reason."""
        self.counts.protocol_errors += 1
        self.refuse(peer, m.Refusal(f"you sent {why}", retryable=True))

    def refuse(self, peer: Peer, refusal: m.Refusal) -> None:
        """End a link. If it must not reconnect, the call waiting at its side raises the reason."""
        self._count_refusal(f"{peer.name}: {refusal.reason}")
        peer.send_refusal(refusal)
        self.disconnect(peer)

    def disconnect(self, peer: Peer) -> None:
        """Remove a link."""
        if not peer.alive:
            return
        if isinstance(peer.transport, ShmTransport):
            self._peers.by_fd.pop(peer.transport.fd, None)
            with contextlib.suppress(OSError):
                self._poll.unregister(peer.transport.fd)
        if self._peers.by_route.get(peer.route) is peer:
            del self._peers.by_route[peer.route]
        if self._peers.by_name.get(peer.name) is peer:
            del self._peers.by_name[peer.name]
        self.pending_releases.discard(peer)
        self._handler.on_disconnect(peer)
        self._close_peer(peer)

    def _close_peer(self, peer: Peer) -> None:
        if self._shm and peer.token:
            self._shm.revoke_token(peer.token)
        peer.close()

    def _housekeeping(self) -> None:
        if time.monotonic() - self._housekept < _HOUSEKEEPING_EVERY:
            return
        self._housekept = time.monotonic()
        if self._shm:
            self._shm.drop_expired()
        for peer in list(self._peers.by_route.values()):
            if peer.transport.shared_memory:
                continue
            try:
                peer.transport.send(m.encode(m.KEEPALIVE))
            except (Disconnected, SendFull):
                self.counts.lost += 1
                self.disconnect(peer)
        self._recheck = True

    def close(self) -> None:
        """Stop listening. Links notice at once, or within a few seconds over the network."""
        if self._poll.closed:
            return
        self.flush_releases()
        for peer in self.peers:
            self.disconnect(peer)
        if self._shm:
            self._shm.close()
        self._poll.close()
        self._router.close(_CLOSE_LINGER_MS)
        waker, self._waker = self._waker, -1
        os.close(waker)
        os.close(self._wake_fd)
        self.context.data_plane_metrics.untrack(self.measure)
