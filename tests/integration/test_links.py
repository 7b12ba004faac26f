"""Two processes of a run and their connection: who may speak, what is refused, and what is left when one dies."""

from __future__ import annotations

import logging
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq
from local_runs import eventually

from callsheet.errors import UserError
from callsheet.runtime.context import Context
from callsheet.runtime.keys import Keys
from callsheet.runtime.link import protocol as m
from callsheet.runtime.link.connector import Refused
from callsheet.runtime.link.endpoint_handler import EndpointHandler, RefuseLink
from callsheet.runtime.link.link import Link, TimedOut
from callsheet.runtime.link.listener import Listener
from callsheet.runtime.link.shm_handshake import ShmHandshakeClient, host_identity
from callsheet.runtime.schema import Schema
from callsheet.runtime.stop import Stopping

ARRAYS = {"obs": np.arange(12, dtype="f4").reshape(3, 4), "done": np.array([True, False, True])}
SCHEMA = Schema.of(ARRAYS)
BY_HAND = {"e": "127.0.0.1:0"}


class Echo(threading.Thread):
    """A listener in a thread that collects what comes and gives it back."""

    def __init__(
        self,
        context: Context,
        handler: EndpointHandler | None = None,
        window: int = 4,
        schema: Schema = SCHEMA,
    ) -> None:
        super().__init__(daemon=True)
        self.listener = Listener(context, "e", handler or EndpointHandler("test"), window=window)
        self.address = self.listener.address
        self.seen: list[tuple[str, int, dict[str, np.ndarray]]] = []
        self.held = threading.Event()
        self.held.set()
        self.parked = threading.Event()
        self._schema = schema

    def run(self) -> None:
        try:
            while True:
                if not self.held.is_set():
                    self.parked.set()
                    self.held.wait()
                for frame in self.listener.poll(0.2):
                    try:
                        arrays = {k: v.copy() for k, v in frame.arrays(self._schema).items()}
                    except m.BadMessage as error:
                        self.listener.protocol_error(frame.peer, str(error))
                        continue
                    self.seen.append((frame.peer.name, frame.header.sequence, arrays))
                    frame.release()
        except Stopping:
            self.listener.close()


@contextmanager
def echo(context: Context, **options: Any) -> Iterator[Echo]:
    """The listener, and its end."""
    one = Echo(context, **options)
    one.start()
    try:
        yield one
    finally:
        one.held.set()
        context.stop.set()
        one.join(10)
        context.close()


@pytest.fixture(params=["memory", "network", "encrypted"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def make(kind: str, keys: Keys | None = None, address: str = "127.0.0.1:0", **options: Any) -> Context:
    keys = keys or Keys(b"k" * 32)
    return Context(
        addresses={"e": address},
        keys=keys,
        plaintext=kind == "network",
        memory=kind == "memory",
        **options,
    )


def send(link: Link, sequence: int, timeout: float = 5) -> None:
    layout = SCHEMA.layout(1)
    block = link.reserve(layout.nbytes, timeout)
    for name, view in layout.views(block.view).items():
        view[0] = ARRAYS[name]
    link.connect(timeout)
    link.post(m.Header(verb=1, schema=SCHEMA.hash, sequence=sequence), block, layout.nbytes)


def test_arrays_arrive_as_they_were_sent(kind: str) -> None:
    with echo(make(kind)) as server:
        with make(kind, address=server.address, role="actor", index=3) as context:
            link = Link(context, "e", "test", schema=SCHEMA)
            for sequence in range(50):
                send(link, sequence)
            assert link.drain(5)
            assert link.shared_memory is (kind == "memory")
            link.close()
        assert [(name, number) for name, number, _ in server.seen] == [
            ("actor/3/actor", n) for n in range(50)
        ]
        for _, _, arrays in server.seen:
            np.testing.assert_array_equal(arrays["obs"][0], ARRAYS["obs"])
            np.testing.assert_array_equal(arrays["done"][0], ARRAYS["done"])


def test_payloads_by_memory_do_not_pass_the_socket() -> None:
    big = {"x": np.ones((256, 1024), "f4")}
    schema = Schema.of(big)
    with (
        echo(make("memory"), schema=schema) as server,
        make("memory", address=server.address, role="a") as context,
    ):
        link = Link(context, "e", "test", schema=schema)
        size = schema.layout(1).nbytes
        for sequence in range(20):
            link.connect(5)
            link.post(m.Header(verb=1, schema=schema.hash, sequence=sequence), link.reserve(size, 5), size)
        link.drain(5)
        assert 0 < link.bytes_on_socket < size * 20 / 100
        link.close()


def test_what_a_listener_says_while_a_link_moves_to_shared_memory_arrives(kind: str) -> None:
    seen: list[int] = []
    with make(kind) as here:
        listener = Listener(here, "e", EndpointHandler("test"))
        with make(kind, address=listener.address) as there:
            link = Link(
                there, "e", "test", schema=SCHEMA, on_data=lambda frame: seen.append(frame.header.sequence)
            )
            while not listener.peers:
                link.try_connect(0.0)
                listener.poll(0.01)
            listener.peers[0].send(m.Header(7, sequence=41))
            listener.peers[0].send(m.Header(7, sequence=42))
            end = time.monotonic() + 10
            while 42 not in seen and time.monotonic() < end:
                if link.try_connect(0.01):
                    link.poll()
                listener.poll(0.01)
            assert seen[-1:] == [42]
            link.close()
        listener.close()


def test_a_slow_listener_makes_its_links_wait(kind: str) -> None:
    with echo(make(kind), window=3) as server, make(kind, address=server.address, role="a") as context:
        link = Link(context, "e", "test", schema=SCHEMA, blocks=16)
        send(link, 0)
        link.drain(5)
        server.held.clear()
        assert server.parked.wait(5)
        for sequence in range(1, 4):
            send(link, sequence)
        with pytest.raises(TimedOut):
            send(link, 4, timeout=0.5)
        assert link.in_flight == 3
        server.held.set()
        assert link.drain(5)
        assert len(server.seen) == 4
        link.close()


def test_no_listener_yet_is_waited_for_and_said(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    with make(kind, role="a", address="127.0.0.1:9") as context:
        with pytest.raises(TimedOut, match=r"no connection to e at 127\.0\.0\.1:9: .*"):
            Link(context, "e", "test").connect(0.3)
        caplog.set_level(logging.WARNING)
        with pytest.raises(TimedOut):
            Link(context, "e", "test").connect(6)
        assert any("waiting for e at 127.0.0.1:9" in record.message for record in caplog.records)


@pytest.mark.parametrize("theirs", ["another run's key", "no key"])
def test_who_has_not_the_runs_key_does_not_come_in(theirs: str, caplog: pytest.LogCaptureFixture) -> None:
    with echo(make("encrypted")) as server:
        kind, keys = ("encrypted", Keys(b"x" * 32)) if theirs == "another run's key" else ("network", None)
        with (
            make(kind, keys, address=server.address, role="a") as context,
            pytest.raises((Refused, TimedOut)),
        ):
            Link(context, "e", "test", schema=SCHEMA).connect(2)
        assert not server.seen
        assert server.listener.counts.hellos == 0


def test_a_client_key_that_is_not_the_runs_is_turned_away_by_name(caplog: pytest.LogCaptureFixture) -> None:
    """Knowing the listener's public key is not enough."""
    keys, context = Keys(b"k" * 32), make("encrypted")
    with echo(context) as server, zmq.Context() as stranger:
        dealer = stranger.socket(zmq.DEALER)
        dealer.linger = 0
        dealer.curve_publickey, dealer.curve_secretkey = zmq.curve_keypair()
        dealer.curve_serverkey = keys.listener[0]
        dealer.connect(f"tcp://{server.address}")
        dealer.send(
            m.encode(m.HELLO, m.Hello(m.PROTOCOL, m.OLDEST_PROTOCOL, "by-hand", "test", "thief", 1, ""))
        )
        deadline = time.monotonic() + 5
        while context.sockets.refused == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        dealer.close(0)
        assert context.sockets.refused >= 1
        assert server.listener.counts.hellos == 0
    said = [record for record in caplog.records if "does not have this run's key" in record.message]
    assert len(said) == 1


def test_two_runs_never_see_each_others_data(kind: str) -> None:
    with (
        echo(make(kind, run="one")) as server,
        make(kind, run="two", role="a", address=server.address) as context,
    ):
        with pytest.raises(Refused, match="it belongs to run 'two', this is run 'one'"):
            Link(context, "e", "test", schema=SCHEMA).connect(5)
        assert server.listener.counts.refused == 1
        assert not server.seen


def test_another_schema_is_refused_and_both_sides_say_the_difference(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    def accept(hello: m.Hello, schema: Schema | None) -> bytes:
        if schema != SCHEMA:
            raise RefuseLink(
                f"its arrays are not the agreed ones: {SCHEMA.difference(schema or SCHEMA)}", schema=SCHEMA
            )
        return b""

    other = Schema.of({"obs": np.zeros((3, 5), "f4"), "done": ARRAYS["done"]})
    with (
        echo(make(kind), handler=EndpointHandler("test", accept)) as server,
        make(kind, role="a", address=server.address) as context,
        pytest.raises(Refused) as caught,
    ):
        Link(context, "e", "test", schema=other).connect(5)
    assert "obs: float32[3, 5] against obs: float32[3, 4]" in caught.value.message
    said = [record.message for record in caplog.records]
    assert any(
        "obs: float32[3, 4] against obs: float32[3, 5]" in text for text in said if "refused a link" in text
    )


@pytest.mark.parametrize(
    ("oldest", "newest"), [(m.PROTOCOL + 1, m.PROTOCOL + 2), (m.OLDEST_PROTOCOL - 1, m.OLDEST_PROTOCOL - 1)]
)
def test_versions_that_have_no_protocol_in_common_say_so(oldest: int, newest: int) -> None:
    with echo(make("network")) as server, zmq.Context() as other:
        dealer = other.socket(zmq.DEALER)
        dealer.linger = 0
        dealer.connect(f"tcp://{server.address}")
        dealer.send(m.encode(m.HELLO, m.Hello(newest, oldest, "by-hand", "test", "old/0", 1, "")))
        assert dealer.poll(5000)
        answer = dealer.recv()
        dealer.close(0)
        assert m.decode_prefix(answer)[0] == m.REFUSAL
        assert f"versions {oldest} to {newest} of the protocol" in m.decode_refusal(answer).reason


def enter(welcome: m.Welcome) -> None:
    handshake = ShmHandshakeClient(welcome.socket, welcome.token)
    try:
        while not handshake.advance():
            handshake.wait(5)
    finally:
        handshake.close()


def test_what_was_said_at_the_door_cannot_be_said_again() -> None:
    """Memory is had by a proof of the welcome, made for one challenge."""
    with echo(make("memory")) as server, make("memory", role="a", address=server.address) as context:
        welcomes: list[m.Welcome] = []
        link = Link(context, "e", "test", schema=SCHEMA, on_connect=welcomes.append)
        link.connect(5)
        assert link.shared_memory
        (welcome,) = welcomes
        with pytest.raises(OSError, match="turned the link away"):
            enter(welcome)
        stranger = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        stranger.settimeout(5)
        stranger.connect("\0" + welcome.socket)
        stranger.recv(64)
        stranger.send(os.urandom(72))
        assert stranger.recv(64) == b""
        stranger.close()
        send(link, 1)
        assert link.drain(5)
        assert server.listener.counts.refused == 2
        link.close()


def test_strangers_who_knock_until_no_descriptor_is_left_do_not_end_a_listener() -> None:
    welcomes: list[m.Welcome] = []
    with (
        ExitStack() as stack,
        echo_process("memory") as (process, address),
        make("memory", role="a", address=address) as context,
    ):
        link = Link(context, "e", "test", schema=SCHEMA, on_connect=welcomes.append)
        send(link, 0)
        assert link.drain(10)
        taken = len(os.listdir(f"/proc/{process.pid}/fd"))
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (taken + 8, taken + 8))
        for _ in range(100):
            stranger = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            stranger.connect("\0" + welcomes[0].socket)
        send(link, 1)
        assert link.drain(30)
        assert process.poll() is None
        link.close()


def test_an_address_that_is_none_is_told_on_both_sides() -> None:
    with make("network", address="nowhere") as context:
        with pytest.raises(UserError, match="cannot connect to 'nowhere'") as told:
            Link(context, "e", "test").connect(5)
        assert told.value.fix == "write host:port"
        with pytest.raises(UserError, match="cannot listen on nowhere") as told:
            Listener(context, "e", EndpointHandler("test"))
        assert told.value.fix.startswith("write host:port")


def test_a_link_that_breaks_the_protocol_is_ended_and_may_come_back(kind: str) -> None:
    with echo(make(kind)) as server, make(kind, role="a", address=server.address) as context:
        link = Link(context, "e", "test", schema=SCHEMA)
        link.connect(5)
        link.post(m.Header(verb=1, schema=SCHEMA.hash, count=7), link.reserve(64, 5), 64)
        deadline = time.monotonic() + 5
        while server.listener.counts.protocol_errors == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert server.listener.counts.protocol_errors >= 1
        link.close()
        again = Link(context, "e", "test", schema=SCHEMA)
        send(again, 5)
        assert again.drain(10)
        again.close()
        assert server.seen[-1][1] == 5


PROGRAM = """
import sys
sys.path.insert(0, {tests!r})
from test_links import SCHEMA, Echo, make
context = make({kind!r}, address={address!r})
server = Echo(context)
print(server.address, flush=True)
server.run()
"""


@contextmanager
def echo_process(kind: str, address: str = "127.0.0.1:0") -> Iterator[tuple[subprocess.Popen[str], str]]:
    code = PROGRAM.format(tests=str(Path(__file__).parent), kind=kind, address=address)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


@pytest.mark.exclusive
def test_a_link_goes_on_when_its_listener_is_killed_and_started_again(kind: str) -> None:
    with ExitStack() as stack:
        process, address = stack.enter_context(echo_process(kind))
        context = stack.enter_context(make(kind, role="a", address=address))
        link = Link(context, "e", "test", schema=SCHEMA)
        send(link, 0)
        assert link.drain(5)
        process.send_signal(signal.SIGKILL)
        process.wait()
        _, again = stack.enter_context(echo_process(kind, address))
        assert again == address
        begun = time.monotonic()
        send(link, 1)
        assert link.drain(10)
        assert time.monotonic() - begun < 2
        link.close()


def test_a_stopped_listener_is_waited_for(kind: str) -> None:
    with echo_process(kind) as (process, address), make(kind, role="a", address=address) as context:
        link = Link(context, "e", "test", schema=SCHEMA)
        send(link, 0)
        assert link.drain(5)
        process.send_signal(signal.SIGSTOP)
        send(link, 1)
        assert not link.drain(1)
        process.send_signal(signal.SIGCONT)
        assert link.drain(10)
        link.close()


def test_nothing_is_left_when_everyone_is_killed() -> None:
    def listens(name: str) -> bool:
        return f"@{name}" in Path("/proc/net/unix").read_text()

    welcomes: list[m.Welcome] = []
    with echo_process("memory") as (process, address), make("memory", role="a", address=address) as context:
        link = Link(context, "e", "test", schema=SCHEMA, on_connect=welcomes.append)
        send(link, 0)
        name = welcomes[0].socket
        assert listens(name)
        process.kill()
        process.wait()
        link.close()
    assert not listens(name)
    assert not [handshake for handshake in os.listdir("/dev/shm") if "callsheet" in handshake]


def test_a_stop_ends_every_wait(kind: str) -> None:
    with make(kind, role="a", address="127.0.0.1:9") as context:
        threading.Timer(0.2, context.stop.set).start()
        begun = time.monotonic()
        with pytest.raises(Stopping):
            Link(context, "e", "test").connect(30)
        assert time.monotonic() - begun < 5


def test_without_a_key_nothing_is_sent_in_the_clear_by_accident() -> None:
    with pytest.raises(UserError, match="no key to encrypt with"):
        Context(addresses=BY_HAND)


def test_a_million_fuzzed_messages_are_refused_without_a_crash() -> None:
    """Every decoder takes any bytes: it answers, or says that the message is bad."""
    chance = random.Random(7)
    good = [
        m.encode(m.HELLO, m.Hello(1, 1, "run", "test", "a/0/a", 5, "host", SCHEMA.encoded)),
        m.encode(m.WELCOME, m.Welcome(1, 2, 4, "socket", b"t" * 32)),
        m.encode(m.REFUSAL, m.Refusal("no")),
        m.encode_data(m.Header(1, SCHEMA.hash, 1, 2, 3, ((3, 4), (3,)), b"body"), 1, 64),
        m.encode_release([1, 2, 3]),
    ]
    decoders = [
        m.decode_prefix,
        m.decode_hello,
        m.decode_welcome,
        m.decode_refusal,
        m.decode_header,
        m.decode_release,
    ]
    survived = 0
    for _ in range(1_000_000 // len(decoders) + 1):
        text = bytearray(chance.choice(good))
        for _ in range(chance.randrange(1, 4)):
            text[chance.randrange(len(text))] = chance.randrange(256)
        piece = bytes(text[: chance.randrange(len(text) + 1)]) if chance.random() < 0.2 else bytes(text)
        for decode in decoders:
            try:
                decode(piece)
            except m.BadMessage:
                survived += 1
    assert survived > 100_000


def test_a_listener_outlives_floods_of_nonsense(kind: str) -> None:
    chance = random.Random(3)
    good = m.encode(
        m.HELLO, m.Hello(m.PROTOCOL, m.OLDEST_PROTOCOL, "by-hand", "test", "a/0/a", 5, "", SCHEMA.encoded)
    )
    keys = Keys(b"k" * 32)
    with echo(make(kind)) as server, zmq.Context() as other:
        dealer = other.socket(zmq.DEALER)
        dealer.linger = 0
        if kind != "network":
            dealer.curve_publickey, dealer.curve_secretkey = keys.link
            dealer.curve_serverkey = keys.listener[0]
        dealer.connect(f"tcp://{server.address}")
        for _ in range(5000):
            text = bytearray(good)
            text[chance.randrange(len(text))] = chance.randrange(256)
            parts = [bytes(text), *(chance.randbytes(9) for _ in range(chance.randrange(3)))]
            dealer.send_multipart(parts)
        dealer.close(5000)
        with make(kind, role="honest", address=server.address) as context:
            link = Link(context, "e", "test", schema=SCHEMA)
            send(link, 1)
            assert link.drain(10)
            link.close()
        assert ("honest/0/honest", 1) in [(name, number) for name, number, _ in server.seen]


def test_a_welcome_that_nobody_uses_is_forgotten_with_its_link() -> None:
    """It would hold what the hello said, for two minutes and for thousands of names."""
    keys = Keys(b"k" * 32)
    with echo(make("memory")) as server, zmq.Context() as other:
        for number in range(20):
            name = f"passing/{number}/passing"
            hello = m.Hello(
                m.PROTOCOL, m.OLDEST_PROTOCOL, "by-hand", "test", name, 1, host_identity(), SCHEMA.encoded
            )
            with other.socket(zmq.DEALER) as dealer:
                dealer.linger = 0
                dealer.curve_publickey, dealer.curve_secretkey = keys.link
                dealer.curve_serverkey = keys.listener[0]
                dealer.connect(f"tcp://{server.address}")
                dealer.send(m.encode(m.HELLO, hello))
                assert dealer.poll(5000)
                assert m.decode_welcome(dealer.recv()).token
        handshake = server.listener._shm
        assert handshake is not None
        eventually(lambda: not handshake._tokens, within=20)
