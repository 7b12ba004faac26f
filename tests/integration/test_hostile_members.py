"""A member of the run that sends garbage: every server lives on, stays small, and serves the others meanwhile."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from free_ports import free_address
from replay_servers import context as replay_context
from replay_servers import serving, until
from trajectory_peers import reading, writing

from callsheet.runtime.link import protocol as m
from callsheet.runtime.link.link import Link, TimedOut
from callsheet.runtime.parameters import ParameterServer
from callsheet.runtime.parameters import protocol as parameter_words
from callsheet.runtime.parameters.protocol import Version
from callsheet.runtime.replay import Table
from callsheet.runtime.replay import protocol as replay_protocol
from callsheet.runtime.replay.config import PRIORITY, insert_schema
from callsheet.runtime.schema import Schema
from callsheet.runtime.stream.sender import ITEMS
from tools.fuzz.peer import ENDPOINT, Peer, context, hello, sealed
from tools.fuzz.services import ASKED, ITEM, SERVERS, Client, Server

WRITTEN = Schema.of(ITEM)
INSERTED = insert_schema(WRITTEN)
WANT = replay_protocol.encode(replay_protocol.TableRequest(replay_protocol.WRITE, "replay"))
SAID: dict[str, dict[str, Any]] = {
    "trajectories": {"schema": WRITTEN.encoded},
    "replay": {"schema": INSERTED.encoded, "body": WANT},
    "parameters": {},
    "policy": {"schema": ASKED.encoded},
}
SCHEMAS = {"trajectories": WRITTEN, "replay": INSERTED, "policy": ASKED}
DEEP = b"\x91" * 60_000


@pytest.fixture(scope="module", params=list(SERVERS))
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with Server(request.param) as made:
        yield made


def lives(server: Server) -> None:
    """It was not harmed: one who comes now is served."""
    assert server.alive, server.said
    with Client(server.kind, server.address) as client:
        assert client.end()[0], server.said


def raw_hello(server: Server, **changes: Any) -> bytes:
    return m.encode(m.HELLO, hello(server.kind, **(SAID[server.kind] | changes)))


def test_deep_nesting_ends_no_server(server: Server) -> None:
    with Peer(server.address) as peer:
        peer.send(m.encode(m.HELLO) + DEEP)
        fields = msgspec.msgpack.encode(hello(server.kind, **SAID[server.kind]))
        peer.send(
            m.encode(m.HELLO) + bytes([fields[0] + 1]) + fields[1:] + DEEP
        )  # in a field that nobody knows
        peer.send(raw_hello(server, schema=DEEP))
        peer.send(raw_hello(server, body=DEEP))
        assert peer.receive(10) is not None
    with Peer(server.address) as peer:
        assert isinstance(peer.hello(hello(server.kind, **SAID[server.kind])), m.Welcome)
        peer.send(m.PREFIX.pack(m.DATA, 0, m.NO_BLOCK, m.NO_BLOCK, 0) + DEEP)
        peer.send(raw_hello(server))
        peer.send(m.encode_data(m.Header(1, body=DEEP), m.NO_BLOCK, 0))
        lives(server)


@pytest.mark.parametrize("incarnation", [1 << 63, (1 << 64) - 1, -1])
def test_a_start_with_an_impossible_number_ends_no_server(server: Server, incarnation: int) -> None:
    with Peer(server.address) as peer:
        peer.send(raw_hello(server, incarnation=incarnation))
        schema = SCHEMAS.get(server.kind)
        if schema is not None:
            size = schema.layout(1).nbytes
            peer.send(m.encode_data(m.Header(1, schema.hash, 1, 1), 0, size), bytes(size))
        lives(server)


ABSURD = {
    "text": [["x", "<U1000000", []]],
    "a structure": [["x", "f4,f4", []]],
    "types within types": [["x", "(1000000000,)f4", []]],
    "code": [["x", "__import__('os')", []]],
    "no shape": [["x", "<f4", [1 << 62, 1 << 62, 1 << 62]]],
    "all memory": [["x", "<f4", [1 << 40]]],
    "a little at a time": [[f"x{n}", "<f8", [1 << 26]] for n in range(64)],
    "nothing much": [["x", "<f4", [0, 1 << 62]]],
    "beyond 64 bits": [["x", "<f4", [(1 << 64) - 1]]],
    "one name": [["x", "<f4", []]] * 4000,
}


@pytest.mark.parametrize("kind", ["trajectories", "replay"])
def test_an_absurd_schema_in_the_first_hello_ends_no_server_and_keeps_nobody_out(kind: str) -> None:
    with Server(kind) as server:
        before = server.memory
        for absurd in ABSURD.values():
            told = absurd if kind == "trajectories" else [*absurd, [PRIORITY, "<f4", []]]
            with Peer(server.address) as peer:
                answer = peer.hello(hello(kind, **(SAID[kind] | {"schema": msgspec.msgpack.encode(told)})))
                assert isinstance(answer, m.Refusal), told
                assert len(answer.reason) <= 2000
        lives(server)
        assert server.memory - before < 100 << 20


@pytest.mark.parametrize("kind", ["trajectories", "replay"])
def test_a_first_hello_that_is_followed_by_nothing_decides_for_nobody(kind: str) -> None:
    other = Schema.of({"other": np.zeros(3, np.float64)})
    told = other if kind == "trajectories" else insert_schema(other)
    with Server(kind) as server, Peer(server.address) as peer:
        assert isinstance(peer.hello(hello(kind, **(SAID[kind] | {"schema": told.encoded}))), m.Welcome)
        lives(server)
        size = told.layout(1).nbytes
        peer.send(m.encode_data(m.Header(ITEMS, told.hash, 1, 1), 0, size), bytes(size))
        found = peer.receive(10)
        assert found is not None
        assert found[0] == m.REFUSAL, "now others have decided"
        again = peer.hello(hello(kind, **(SAID[kind] | {"schema": told.encoded})))
        assert isinstance(again, m.Refusal)
        assert again.schema == (WRITTEN if kind == "trajectories" else INSERTED).encoded
        assert server.alive


def flood_network(peer: Peer, kind: str) -> None:
    schema = SCHEMAS.get(kind, WRITTEN)
    payload = bytes(m.MAX_PART_BYTES)
    for number in range(1, 600):
        head = m.encode_data(m.Header(ITEMS, schema.hash, 1, number, body=b"\0"), number % 8, len(payload))
        peer.send(head, payload, patience=1.0)


def flood_memory(peer: Peer, kind: str) -> None:
    schema = SCHEMAS.get(kind, WRITTEN)
    size = schema.layout(1).nbytes
    fd = sealed(1 << 20)
    try:
        for number in range(1, 20_000):
            header = m.Header(ITEMS, schema.hash, 1, number, body=b"\0")
            fresh = number == 1
            message = m.encode_data(header, 0, size, flags=m.NEW_BLOCK if fresh else 0)
            if not peer.send_memory(message, [fd] if fresh else None):
                return
    finally:
        os.close(fd)


@pytest.mark.parametrize("way", ["network", "memory"])
def test_one_that_sends_more_than_its_window_is_shown_the_door(server: Server, way: str) -> None:
    before = server.memory
    told = SAID[server.kind] or {"schema": WRITTEN.encoded}
    with Client(server.kind, server.address) as honest, Peer(server.address) as peer:
        answer = peer.hello(hello(server.kind, **told))
        assert isinstance(answer, m.Welcome)
        if way == "network":
            flood_network(peer, server.kind)
            until(lambda: (peer.receive(1) or (0, b""))[0] == m.REFUSAL)
        else:
            assert peer.enter(answer)
            flood_memory(peer, server.kind)
            until(lambda: not peer.drain())
        served, gap = honest.end()
        assert server.alive, server.said
        assert server.memory - before < 100 << 20
        assert served
        assert gap < 5, "on a busy machine; the fuzzer asks for more"
    lives(server)


@pytest.mark.parametrize("carrier", ["memory", "network"])
def test_items_in_flight_stay_within_a_window_that_has_become_smaller(carrier: str) -> None:
    """An honest writer is not taken for one that floods, when the next reader allows less than the one before."""
    address = free_address()
    with reading(carrier, address, window=8) as first:
        writers = []

        def work(writer: Any) -> None:
            writers.append(writer)
            for number in range(40):
                writer.write({"x": np.full(100_000, number, np.float32)})

        with writing(carrier, address, work, patience=20) as writer:
            first.read(1, timeout=10)
            until(lambda: writers[0].counts()["in_flight"] == 8)
            first.close()
            with reading(carrier, address, window=2) as second:
                found = [int(second.read(1, timeout=20)["x"][0, 0]) for _ in range(39)]
                assert found == list(range(1, 40))
                assert second.counts()["expelled"] == 0
            writer.join(20)


def test_a_priority_that_changes_after_it_was_checked_changes_nothing() -> None:
    schema = Schema.of({"x": np.zeros(4, np.float32)})
    sent = insert_schema(schema)
    table = Table(kind="prioritized", items=100, schema=schema, samples_per_insert=1.0, tolerance=1.0)
    with (
        serving("memory", table) as shard,
        replay_context("memory", shard.address, role="intruder") as ctx,
        replay_context("memory", shard.address, role="learner") as there,
    ):
        writer = Link(ctx, "replay", replay_protocol.SERVICE, schema=sent, hello_body=lambda: WANT)
        want = replay_protocol.encode(replay_protocol.TableRequest(replay_protocol.TO_SAMPLE, "replay"))
        sampler = Link(there, "replay", replay_protocol.SERVICE, hello_body=lambda: want)
        writer.connect(10)
        sampler.connect(10)
        layout = sent.layout(4)
        block = writer.reserve(layout.nbytes, 10)
        priorities = layout.views(block.view)[PRIORITY]
        priorities[:] = 1.0
        writer.post(m.Header(ITEMS, sent.hash, 4, 1), block, layout.nbytes)
        until(lambda: shard.server.counts()["held_inserts"] == 1)
        inserted = shard.server.table().counts.inserted
        assert inserted < 4
        priorities[:] = [-1.0, np.nan, np.inf, -np.inf]
        for number in range(1, 5):
            sampler.send(m.Header(replay_protocol.SAMPLE, 0, 1, number))
        until(lambda: shard.server.table().counts.inserted == 4)
        assert shard.server.table().total_weight == pytest.approx(4.0)
        assert shard.is_alive()
        del priorities
        writer.close()
        sampler.close()


@pytest.mark.parametrize("way", ["memory", "network"])
def test_ever_new_names_on_one_connection_are_one_link(way: str) -> None:
    size = INSERTED.layout(1).nbytes
    bad = m.encode_data(m.Header(ITEMS, INSERTED.hash, 7, 1), 0, size)
    with serving("memory", Table(items=100)) as shard:
        listener, delivery_log = shard.server.listener, shard.server._services["replay"].delivery_log
        with Peer(shard.address, plaintext=False) as peer:
            for number in range(200):
                said = SAID["replay"] | {"run": "by-hand"}
                answer = peer.hello(hello("replay", f"intruder/{number}/" + "x" * 200, **said))
                while isinstance(answer, m.Refusal):  # of the bad items before
                    found = peer.receive(10)
                    assert found is not None
                    answer = m.decode_welcome(found[1]) if found[0] == m.WELCOME else answer
                assert isinstance(answer, m.Welcome)
                if way == "memory":
                    old = peer.memory
                    assert peer.enter(answer)
                    if old is not None:
                        old.close()
                elif number % 2:
                    peer.send(bad, bytes(size))
            until(lambda: listener.link_count <= 1)
        until(lambda: listener.link_count == 0)
        assert not any(delivery_log.names), "nothing was taken from any of them"


def test_a_name_has_an_end(server: Server) -> None:
    with Peer(server.address) as peer:
        for name in ("x" * 50_000, "\u0000" * 300, "é" * 257):
            peer.send(raw_hello(server, name=name))
        lives(server)


def test_snapshots_that_are_not_given_back_are_not_lent_for_ever() -> None:
    with context(role="server", memory=False) as ctx, ParameterServer(ctx, ENDPOINT) as server:
        server.publish(1, {"w": np.zeros(4)})
        with Peer(server.address) as peer:
            assert isinstance(peer.hello(hello("parameters")), m.Welcome)
            for _ in range(20):
                peer.send(
                    m.encode_data(
                        m.Header(parameter_words.FETCH, body=parameter_words.encode(Version())), m.NO_BLOCK, 0
                    )
                )
            kinds = []
            while (found := peer.receive(10)) is not None:
                kinds.append(found[0])
                if found[0] == m.REFUSAL:
                    break
            assert kinds == [m.DATA] * 8 + [m.REFUSAL]
            until(lambda: server.counts()["lent"] == 0)


def test_a_block_of_huge_pages_is_not_taken(server: Server) -> None:
    """Whoever looks into a hole of such a block ends by a signal when there are no such pages left."""
    try:
        fd = os.memfd_create("fuzz", os.MFD_ALLOW_SEALING | os.MFD_HUGETLB)
    except OSError:
        pytest.skip("this system has no huge pages")
    os.ftruncate(fd, 2 << 20)
    import fcntl

    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    with Peer(server.address) as peer:
        answer = peer.hello(hello(server.kind, **(SAID[server.kind] or {"schema": WRITTEN.encoded})))
        assert isinstance(answer, m.Welcome)
        assert peer.enter(answer)
        peer.send_memory(m.encode_data(m.Header(1, body=b"\0"), 0, 64, flags=m.NEW_BLOCK), [fd])
        until(lambda: not peer.drain())
    os.close(fd)
    lives(server)


def test_a_connection_that_breaks_with_messages_nobody_has_taken_yet_ends_no_process() -> None:
    """ZeroMQ aborts a process whose own sign of life is due on such a connection."""
    code = (
        "import sys, time\n"
        "from callsheet.runtime.trajectories import TrajectoryReader\n"
        "from tools.fuzz.peer import context\n"
        "with context(role='server') as ctx, TrajectoryReader(ctx, 'e') as reader:\n"
        "    print(reader.address, flush=True)\n"
        "    sys.stdin.readline()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as busy:
        assert busy.stdin is not None
        assert busy.stdout is not None
        with Peer(busy.stdout.readline().strip()) as peer:
            for _ in range(5000):  # many more than ZeroMQ takes for somebody who does not ask for them
                peer.send(m.encode(m.KEEPALIVE), patience=1.0)
        with pytest.raises(subprocess.TimeoutExpired):
            busy.wait(3)  # three signs of life
        busy.stdin.write("\n")
        busy.stdin.close()
        assert busy.wait(20) == 0


def test_one_that_comes_again_and_again_has_one_window() -> None:
    schema = Schema.of({"x": np.zeros(4, np.float32)})
    layout = schema.layout(1024)
    ended = threading.Event()
    with reading("memory", schema=schema) as reader, Peer(reader.address, plaintext=False) as peer:

        def read_slowly() -> None:
            while not ended.wait(0.01):
                with contextlib.suppress(TimedOut):
                    reader.read(1, timeout=0.05)

        thread = threading.Thread(target=read_slowly)
        thread.start()
        try:
            for number in range(30):
                said = hello("trajectories", f"intruder/{number}", run="by-hand", schema=schema.encoded)
                assert isinstance(peer.hello(said), m.Welcome)
                for block in range(8):
                    header = m.Header(ITEMS, schema.hash, 1024, 1 + 1024 * block)
                    peer.send(m.encode_data(header, block, layout.nbytes), bytes(layout.nbytes))
            until(lambda: reader.counts()["frames"] == 240)
            assert reader.counts()["waiting"] <= 10 * 1024, "its last window, and the frame that was begun"
        finally:
            ended.set()
            thread.join(20)


def test_hellos_without_end_keep_nobody_waiting(server: Server) -> None:
    with Client(server.kind, server.address) as honest, Peer(server.address) as peer:
        until_then = time.monotonic() + 5
        while time.monotonic() < until_then:
            peer.send(raw_hello(server))
            while peer.receive(0.0):
                pass
        _, gap = honest.end()
        assert gap < 3, "much less, where there is nobody else"
