"""The side that binds an endpoint: many links, by memory or by the network, in one loop without threads."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import time
from collections.abc import Iterator
from typing import Any

import zmq

from callsheet.errors import UserError
from callsheet.runtime.context import Context
from callsheet.runtime.link import protocol as m
from callsheet.runtime.link.blocks import CAN_SHARE
from callsheet.runtime.link.endpoint_handler import LONGEST_REASON, Counts, Noted, Pattern, Refuse
from callsheet.runtime.link.frame import Frame, Parts
from callsheet.runtime.link.peer import LARGE, Peer, Peers
from callsheet.runtime.link.shm_handshake import Door, host_identity
from callsheet.runtime.link.transport import Full, Lost, MemoryWire, NetworkWire, parse, take
from callsheet.runtime.schema import Schema
from callsheet.runtime.stop import Deadline

log = logging.getLogger("callsheet.runtime")
_SWEEP = 2.0
_LAST_WORDS = 500
"""Milliseconds that the last answers have to leave when a listener closes."""
_LINGER = 0.001
"""Seconds for which blocks that are done with are collected: a peer has others meanwhile, and one message gives many back."""
_POLLIN = int(zmq.POLLIN)
_AT_ONCE = 64
"""Messages with arrays that are taken from one peer, or from the network, before others have their turn."""
_STAYS = 0.2
"""Seconds that one call stays for those who say hello, however many do: others wait for what has come."""
_TURN = 0.02
"""Seconds for which the network has its turn at most: of a thousand who say hello, all should be heard."""


class Listener:
    """Takes messages from all links of an endpoint. One thread at a time uses it."""

    def __init__(self, context: Context, endpoint: str, pattern: Pattern, *, window: int = 4) -> None:
        self.context = context
        self.endpoint = endpoint
        self.window = window
        self.counts = Counts()
        self.owing: set[Peer] = set()
        self._pattern = pattern
        self._peers = Peers()
        self._ready: list[Frame] = []
        self._swept = time.monotonic()
        self._noted = Noted()
        self._touched = True
        self._heeds_stop = True
        address = context.bind(endpoint)
        self._router = context.sockets.listener(address)
        try:
            self._router.bind(f"tcp://{address}")
        except zmq.ZMQError as error:
            self._router.close(0)
            raise UserError(
                f"endpoint {endpoint!r} cannot listen on {address}: {error.strerror}",
                fix="another process holds that port; end it or choose another port"
                if error.errno == zmq.EADDRINUSE
                else "write host:port, with an address of this machine",
            ) from None
        self.address = (
            bytes(self._router.getsockopt(zmq.LAST_ENDPOINT)).rstrip(b"\0").decode().removeprefix("tcp://")
        )
        self._door = Door() if CAN_SHARE and context.memory else None
        self._poll = select.epoll()
        self._router_fd = int(self._router.getsockopt(zmq.FD))
        self._poll.register(self._router_fd, select.EPOLLIN)
        self._poll.register(context.stop.fd, select.EPOLLIN)
        self._awake = False
        self._wake_fd, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll.register(self._wake_fd, select.EPOLLIN)
        if self._door:
            self._poll.register(self._door.socket.fileno(), select.EPOLLIN)
        metrics = context.measuring.follow("Transport", endpoint, self.measure)
        metrics.keys_refused.follow(lambda: context.sockets.refused)

    def measure(self) -> dict[str, float]:
        """What the metrics of transport show."""
        counts = self.counts
        return {
            "received_memory": counts.bytes_by_memory,
            "received_network": counts.bytes - counts.bytes_by_memory,
            "frames_received": counts.frames,
            "peers": len(self._peers.by_name),
            "refusals": counts.refused,
        }

    @property
    def peers(self) -> list[Peer]:
        """All links now."""
        return list(self._peers.by_name.values())

    @property
    def links(self) -> int:
        """How many there are."""
        return len(self._peers.by_name)

    def touched(self) -> None:
        """ZeroMQ's socket was used: its descriptor may have lost a signal."""
        self._touched = True

    def poll(self, timeout: float | None = None) -> list[Frame]:
        """Messages that have come; waits for the first. Empty when the time is over, or after `wake`."""
        if not self._touched and not (self._door and self._door.greeting() > 0):
            self._look(0.0)  # a busy reader need not think about how to wait
            if self._ready:
                return self._taken()
        deadline = Deadline(timeout)
        stays = time.monotonic() + _STAYS
        while True:
            if self._touched:
                self._take_network()
            if not self._ready:
                self._touched = self._touched or bool(int(self._router.getsockopt(zmq.EVENTS)) & _POLLIN)
            wait = 0.0 if self._ready or self._touched or self._awake else deadline.left(_SWEEP)
            greeting = self._greeting(stays)
            if greeting > 0 and not self._touched:
                wait = max(wait, greeting)
            elif self.owing:
                wait = min(wait, _LINGER)
            if not self._look(wait) and wait:
                self.settle()
            if self._greeting(stays) > 0 or (self._touched and not self._ready and time.monotonic() < stays):
                continue
            if self._ready or self._awake:
                return self._taken()
            if self._heeds_stop:
                self.context.stop.check()
            if deadline.passed:
                self.settle()
                return []

    def _greeting(self, until: float) -> float:
        return min(self._door.greeting(), until - time.monotonic()) if self._door else 0.0

    def _look(self, wait: float) -> bool:
        """See to whatever happens within that time; whether something did."""
        events = self._poll.poll(wait, 64)
        for fd, _ in events:
            self._handle(fd)
        self._sweep()
        return bool(events)

    def _taken(self) -> list[Frame]:
        found, self._ready, self._awake = self._ready, [], False
        return found

    @contextlib.contextmanager
    def ignoring_stop(self) -> Iterator[None]:
        """In this block waits go on although the process should stop: it takes what others still hand over."""
        self._heeds_stop = False
        self._poll.unregister(self.context.stop.fd)
        try:
            yield
        finally:
            self._heeds_stop = True
            self._poll.register(self.context.stop.fd, select.EPOLLIN)

    def wake(self) -> None:
        """End the wait of the thread that polls; any thread may do that."""
        with contextlib.suppress(OSError):  # full: it will wake anyway; closed: there is no wait
            os.write(self._waker, b"x")

    def settle(self) -> None:
        """Give back every block that is done with."""
        while self.owing:
            self.owing.pop().pay()

    def _handle(self, fd: int) -> None:
        peer = self._peers.by_fd.get(fd)
        if peer is not None:
            self._take_memory(peer)
        elif fd == self._router_fd:
            self._touched = True
        elif fd == self._wake_fd:
            self._awake = True
            os.read(fd, 4096)
        elif self._door and fd == self._door.socket.fileno():
            for new in self._door.knock():
                self._poll.register(new, select.EPOLLIN)
        elif self._door and self._door.waits(fd):
            self._poll.unregister(fd)
            proved = self._door.prove(fd)
            if proved is None:
                self._refused("memory was asked for without a welcome")
            else:
                self._by_memory(*proved)

    def _by_memory(self, connection: Any, guest: object) -> None:
        if not isinstance(guest, Peer) or not guest.alive:
            connection.close()
            return
        guest.wire = MemoryWire(connection)
        self._peers.by_fd[guest.wire.fd] = guest
        self._poll.register(guest.wire.fd, select.EPOLLIN)

    def _take_memory(self, peer: Peer) -> None:
        wire = peer.wire
        if not isinstance(wire, MemoryWire):
            return
        try:
            for _ in range(_AT_ONCE):
                found = wire.receive()
                if found is None:
                    return
                self._message(peer, *found)
        except Lost:
            self.counts.lost += 1
            self.drop(peer)
        except m.BadMessage as error:
            self.expel(peer, str(error))

    def _take_network(self) -> None:
        over, most = time.monotonic() + _TURN, len(self._ready) + _AT_ONCE
        while len(self._ready) < most and time.monotonic() < over:
            try:
                parts = take(self._router)
            except zmq.Again:
                self._touched = False
                return
            route = bytes(parts[0].buffer)
            peer = self._peers.by_route.get(route)
            try:
                message, payload, kind, block, released = parse(parts[1:])
                if kind == m.HELLO:
                    self._hello(route, m.hello_of(message))
                elif peer is None:
                    self._answer(route, m.encode(m.REFUSAL, m.Refusal("say hello first", again=True)))
                elif peer.wire.by_memory:
                    if kind != m.ALIVE:  # which it may have said while it waited for its memory
                        raise m.BadMessage("a message by the network after it went to memory")
                else:
                    self._message(peer, message, payload, kind, block, released)
            except m.BadMessage as error:
                if peer is not None:
                    self.expel(peer, str(error))
                else:
                    self._refused(f"a message that is none of ours: {error}")

    def _message(
        self,
        peer: Peer,
        message: bytes | memoryview,
        payload: memoryview | Parts,
        kind: int,
        block: int,
        released: int,
    ) -> None:
        if released != m.NO_BLOCK:
            peer.given_back(released)
        if kind == m.RELEASE:
            for index in m.released_by(message):
                peer.given_back(index)
        elif kind == m.DATA:
            if block != m.NO_BLOCK:
                peer.open += 1
                if peer.open > self.window:
                    raise m.BadMessage(f"more than the {self.window} frames that may be on their way")
            release = peer.owe if len(payload) < LARGE else peer.hold()
            frame = Frame(m.header_of(message), payload, block, peer, release)
            if len(payload):
                if peer.schema is None:
                    raise m.BadMessage("arrays from a link that announced none")
                self.counts.bytes += len(payload)
                if peer.wire.by_memory:
                    self.counts.bytes_by_memory += len(payload)
            self.counts.frames += 1
            self._ready.append(frame)
        elif kind != m.ALIVE:
            raise m.BadMessage(f"kind {kind} from a link")

    def _hello(self, route: bytes, hello: m.Hello) -> None:
        self.counts.hellos += 1
        try:
            schema = self._check(hello)
            body = self._pattern.accept(hello, schema)
        except Refuse as no:
            self._refused(f"{hello.name}: {no.reason}")
            theirs = no.schema.encoded if no.schema else b""
            self._answer(route, m.encode(m.REFUSAL, m.Refusal(no.reason[:LONGEST_REASON], no.again, theirs)))
            return
        peer = Peer(self, hello, schema, NetworkWire(self._router, route), route)
        takes = self._pattern.takes()
        welcome = m.Welcome(m.PROTOCOL, self.context.incarnation, self.window, body=body)
        welcome.schema = takes.encoded if takes else b""
        if self._door is not None and hello.host == host_identity() != "":
            welcome.socket, welcome.token = self._door.name, self._door.expect(peer)
            peer.token = welcome.token
        if not self._answer(route, m.encode(m.WELCOME, welcome)):
            self._forget(peer)  # it gave up and is gone; its next try may be here already
            return
        # One connection is one link: under another name it is not the old one any more.
        for old in (self._peers.by_name.get(hello.name), self._peers.by_route.get(route)):
            if old is not None:
                self.drop(old)
        self._peers.by_name[hello.name] = self._peers.by_route[route] = peer

    def _check(self, hello: m.Hello) -> Schema | None:
        old = self._peers.by_name.get(hello.name)
        if old is not None and old.incarnation > hello.incarnation and old.wire.by_memory:
            raise Refuse(f"a later start of {hello.name} is connected already", again=True)
        return self._pattern.check(hello, self.context.run, self.endpoint)

    def _answer(self, route: bytes, message: bytes) -> bool:
        self._touched = True
        try:
            self._router.send_multipart([route, message], zmq.NOBLOCK)
        except zmq.ZMQError:
            return False  # it has gone already
        return True

    def _refused(self, why: str) -> None:
        self.counts.refused += 1
        if self._noted.news(why):
            log.warning("endpoint %s refused a link: %s", self.endpoint, why[:LONGEST_REASON])

    def expel(self, peer: Peer, why: str) -> None:
        """End a link that broke the protocol. It may come back, and knows why it was gone."""
        self.counts.expelled += 1
        self.refuse(peer, m.Refusal(f"you sent {why}", again=True))

    def refuse(self, peer: Peer, no: m.Refusal) -> None:
        """End a link. When it need not come again, the call that waits there raises why."""
        self._refused(f"{peer.name}: {no.reason}")
        peer.say_no(no)
        self.drop(peer)

    def drop(self, peer: Peer) -> None:
        """A link is gone."""
        if not peer.alive:
            return
        if isinstance(peer.wire, MemoryWire):
            self._peers.by_fd.pop(peer.wire.fd, None)
            with contextlib.suppress(OSError):
                self._poll.unregister(peer.wire.fd)
        if self._peers.by_route.get(peer.route) is peer:
            del self._peers.by_route[peer.route]
        if self._peers.by_name.get(peer.name) is peer:
            del self._peers.by_name[peer.name]
        self.owing.discard(peer)
        self._pattern.gone(peer)
        self._forget(peer)

    def _forget(self, peer: Peer) -> None:
        if self._door and peer.token:
            self._door.revoke(peer.token)
        peer.close()

    def _sweep(self) -> None:
        if time.monotonic() - self._swept < _SWEEP:
            return
        self._swept = time.monotonic()
        if self._door:
            self._door.sweep()
        for peer in list(self._peers.by_route.values()):
            if peer.wire.by_memory:
                continue
            try:
                peer.wire.send(m.encode(m.ALIVE))
            except (Lost, Full):
                self.counts.lost += 1
                self.drop(peer)
        self._touched = True

    def close(self) -> None:
        """Stop listening; links see it at once, or within a few seconds over the network."""
        if self._poll.closed:
            return
        self.settle()
        for peer in self.peers:
            self.drop(peer)
        if self._door:
            self._door.close()
        self._poll.close()
        self._router.close(_LAST_WORDS)
        waker, self._waker = self._waker, -1
        os.close(waker)
        os.close(self._wake_fd)
        self.context.measuring.ended(self.measure)
