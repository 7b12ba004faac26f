"""Parameters between processes: whole snapshots, the latest first, whatever happens to the others."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "programs"))
from parameters import arrays, context

from callsheet.errors import UserError
from callsheet.runtime.context import Context
from callsheet.runtime.link import protocol as m
from callsheet.runtime.link.huge_pages import round_up
from callsheet.runtime.link.link import Link, TimedOut
from callsheet.runtime.parameters import ParameterReader, ParameterServer, Snapshot, protocol
from callsheet.runtime.parameters.snapshot_buffer import MAX_LENT
from callsheet.runtime.stop import Stopping

PROGRAM = Path(__file__).parent.parent / "programs" / "parameters.py"
SOON = 10.0


@pytest.fixture(params=["memory", "network", "encrypted"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server(kind: str) -> Iterator[ParameterServer]:
    with context(kind, "127.0.0.1:0") as ctx, ParameterServer(ctx, "p") as one:
        yield one


@pytest.fixture
def ctx(kind: str, server: ParameterServer) -> Iterator[Context]:
    """The context of the readers."""
    with context(kind, server.address, role="reader") as one:
        yield one


@contextmanager
def program(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(PROGRAM), *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout
        process.stdout.close()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def until(condition: Callable[[], object], limit: float = SOON) -> None:
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def one_block() -> int:
    """What a snapshot of `arrays` takes at most."""
    return round_up(sum(value.nbytes for value in arrays(0).values()) + 64 * 1024, 64 * 1024)


def is_whole(snapshot: Snapshot) -> bool:
    return all(bool((value == snapshot.version).all()) for value in snapshot.arrays.values())


def test_a_reader_gets_what_was_published(kind: str, server: ParameterServer, ctx: Context) -> None:
    mean = np.array(2.5)
    server.publish(7, {"weights": np.arange(12, dtype="f4").reshape(3, 4), "mean": mean, "steps": 9})
    with ParameterReader(ctx, "p") as reader:
        snapshot = reader.wait(timeout=SOON)
        assert reader.shared_memory is (kind == "memory")
    assert (snapshot.version, snapshot.incarnation) == (7, server.incarnation)
    np.testing.assert_array_equal(snapshot.arrays["weights"], np.arange(12).reshape(3, 4))
    assert snapshot.arrays["weights"].dtype == np.float32
    assert snapshot.arrays["mean"] == mean
    assert snapshot.arrays["mean"].shape == ()
    assert snapshot.arrays["steps"] == 9


def test_one_who_asks_and_goes_is_forgotten() -> None:
    """Its question and its end may be found in the same look."""
    looks = threading.Event()
    looks.set()
    with (
        context("memory", "127.0.0.1:0") as there,
        ParameterServer(there, "p") as server,
        context("memory", server.address, role="reader") as here,
    ):
        listener = server._listener
        look = listener.poll
        listener.poll = lambda timeout=None: looks.wait(SOON) and look(timeout)  # type: ignore[method-assign, assignment]
        link = Link(here, "p", protocol.SERVICE)
        link.connect(SOON)
        looks.clear()
        link.send(m.Header(protocol.FETCH, body=protocol.encode(protocol.Version())))
        until(lambda: server.counts()["waiting"] == 1)
        link.send(m.Header(protocol.FETCH, body=protocol.encode(protocol.Version())))
        link.close()
        looks.set()
        until(lambda: server.counts()["readers"] == 0)
        with ParameterReader(here, "p") as reader:
            with pytest.raises(TimedOut):
                reader.wait(timeout=0.5)
            server.publish(1, arrays(1))
            assert reader.wait(timeout=SOON).version == 1
        until(lambda: server.counts()["readers"] == 0)
        assert server.counts()["sent"] == 1, "nothing was sent to the one who went"


def test_a_poll_gives_nothing_or_the_latest(server: ParameterServer, ctx: Context) -> None:
    with ParameterReader(ctx, "p") as reader:
        assert reader.poll() is None
        for version in range(50):
            server.publish(version, arrays(version))
        until(lambda: (found := reader.poll()) is not None and found.version == 49)
        assert reader.poll() is None
        server.publish(60, arrays(60))
        until(lambda: (found := reader.poll()) is not None and is_whole(found))
        assert reader.version == 60
        assert reader.poll(newer_than=60) is None
        again = reader.poll(newer_than=59)
        assert again is not None
        assert again.version == 60


def test_a_reader_may_ask_for_what_comes_later(server: ParameterServer, ctx: Context) -> None:
    with ParameterReader(ctx, "p") as reader:
        server.publish(1, arrays(1))
        assert reader.wait(timeout=SOON).version == 1
        for version in range(2, 12):
            server.publish(version, arrays(version))
            assert reader.poll(newer_than=11) is None
        server.publish(12, arrays(12))
        until(lambda: reader.poll(newer_than=11) is not None)
        assert reader.version == 12


def test_a_wait_ends_with_the_next_version(server: ParameterServer, ctx: Context) -> None:
    with ParameterReader(ctx, "p") as reader:
        with pytest.raises(TimedOut, match=r"published nothing newer than version -1 in 0\.2 s"):
            reader.wait(timeout=0.2)
        threading.Timer(0.2, server.publish, (3, arrays(3))).start()
        assert reader.wait(timeout=SOON).version == 3
        with pytest.raises(TimedOut, match="published nothing newer than version 3"):
            reader.wait(timeout=0.2)
        server.publish(4, arrays(4))
        server.publish(5, arrays(5))
        until(lambda: reader.poll() is not None and reader.version == 5)


def test_a_wait_ends_when_the_process_should_stop(server: ParameterServer, ctx: Context) -> None:
    with ParameterReader(ctx, "p") as reader:
        threading.Timer(0.2, ctx.stop.set).start()
        with pytest.raises(Stopping):
            reader.wait(timeout=SOON)


def test_versions_only_grow(server: ParameterServer) -> None:
    server.publish(5, arrays(5))
    for version in (5, 4):
        with pytest.raises(UserError, match=f"version {version} is not newer than the published version 5"):
            server.publish(version, arrays(version))
    with pytest.raises(UserError, match="version is -1"):
        server.publish(-1, arrays(1))
    assert server.version == 5


def test_what_cannot_travel_is_refused_and_the_last_version_stays(
    server: ParameterServer, ctx: Context
) -> None:
    server.publish(1, arrays(1))
    with pytest.raises(UserError, match="array 'names' has the type object"):
        server.publish(2, {"names": np.array([object()])})
    with ParameterReader(ctx, "p") as reader:
        assert reader.wait(timeout=SOON).version == 1


def test_arrays_may_change_from_version_to_version(server: ParameterServer, ctx: Context) -> None:
    with ParameterReader(ctx, "p") as reader:
        for version in range(6):
            shape = (version + 1, 1000 * (version % 3))
            server.publish(
                version, {"a": np.full(shape, version, "f8"), f"only{version}": np.arange(version)}
            )
            snapshot = reader.wait(timeout=SOON)
            assert snapshot.version == version
            assert list(snapshot.arrays) == ["a", f"only{version}"]
            assert snapshot.arrays["a"].shape == shape
            assert (snapshot.arrays["a"] == version).all()


def test_a_network_of_a_thousand_arrays_is_no_problem(server: ParameterServer, ctx: Context) -> None:
    many = {f"encoder.layers.{number}.attention.weight": np.full(3, number) for number in range(1000)}
    server.publish(0, many)
    with ParameterReader(ctx, "p") as reader:
        found = reader.wait(timeout=SOON).arrays
    assert list(found) == list(many)
    assert all((found[name] == many[name]).all() for name in many)


def test_parameters_are_copied_where_the_reader_says(server: ParameterServer, ctx: Context) -> None:
    mine = {name: np.zeros_like(value) for name, value in arrays(0).items()}
    server.publish(1, arrays(1))
    with ParameterReader(ctx, "p") as reader:
        snapshot = reader.wait(timeout=SOON, out=mine)
        assert all(snapshot.arrays[name] is mine[name] for name in mine)
        assert (mine["w3"] == 1).all()
        server.publish(2, {"other": np.zeros(3)})
        with pytest.raises(UserError, match="array 'other' is missing"):
            reader.wait(timeout=SOON, out=mine)
        assert reader.version == 1
        assert list(reader.wait(timeout=SOON).arrays) == ["other"]


def test_the_readers_own_arrays_are_used_again(server: ParameterServer, ctx: Context) -> None:
    with ParameterReader(ctx, "p") as reader:
        server.publish(1, arrays(1))
        first = reader.wait(timeout=SOON)
        server.publish(2, arrays(2))
        second = reader.wait(timeout=SOON)
    assert all(first.arrays[name] is second.arrays[name] for name in first.arrays)


def test_views_stay_as_they_are_until_the_next_snapshot(server: ParameterServer, ctx: Context) -> None:
    with ParameterReader(ctx, "p", views=True) as reader:
        server.publish(0, arrays(0))
        views = reader.wait(timeout=SOON)
        assert not views.arrays["w0"].flags.writeable
        for version in range(1, 20):
            server.publish(version, arrays(version))
            assert is_whole(views)
        views = reader.wait(timeout=SOON)
        assert is_whole(views)
        assert views.version == 19


def test_one_copy_serves_all_readers(kind: str, server: ParameterServer, ctx: Context) -> None:
    """128 readers in one process; memory depends on the number of snapshots in use, not on that of the readers."""
    with ExitStack() as stack:
        readers = [stack.enter_context(ParameterReader(ctx, "p", views=True)) for _ in range(128)]
        for version in range(3):
            server.publish(version, arrays(version))
            for reader in readers:
                snapshot = reader.wait(timeout=SOON)
                assert snapshot.version == version
                assert is_whole(snapshot)
        counts = server.counts()
        assert counts["readers"] == 128
        assert counts["sent"] == 3 * 128
        assert counts["memory_bytes"] <= 3 * one_block()


def test_readers_that_keep_their_snapshots_do_not_hinder_the_others(
    server: ParameterServer, ctx: Context
) -> None:
    """Each of many readers holds a version of its own; publishing goes on, and so does a reader that keeps up."""
    with ExitStack() as stack:
        keeping = [stack.enter_context(ParameterReader(ctx, "p", views=True)) for _ in range(3 * MAX_LENT)]
        kept = []
        for version, reader in enumerate(keeping):
            server.publish(version, arrays(version))
            kept.append(reader.wait(timeout=SOON))
        assert server.counts()["memory_bytes"] <= (MAX_LENT + 2) * one_block()
        quick = stack.enter_context(ParameterReader(ctx, "p"))
        for version in range(100, 110):
            server.publish(version, arrays(version))
            until(lambda version=version: quick.wait(timeout=SOON).version == version, limit=2)
        assert all(is_whole(snapshot) for snapshot in kept)


def test_nobody_sees_a_mix_while_versions_are_published_as_fast_as_can_be(kind: str) -> None:
    with program("publish", kind, "127.0.0.1:0", 0) as publisher:
        address = said(publisher)
        with context(kind, address, role="reader") as ctx, ExitStack() as stack:
            readers = [
                stack.enter_context(ParameterReader(ctx, "p", views=bool(number % 2))) for number in range(6)
            ]
            seen = [reader.wait(timeout=SOON).version for reader in readers]
            begun = time.monotonic()
            taken = 0
            for number, reader in itertools.cycle(enumerate(readers)):
                if taken > 50 and time.monotonic() - begun > 2:
                    break
                assert time.monotonic() - begun < 60, taken
                found = reader.poll() if number < 3 else reader.wait(timeout=SOON)
                if found is not None:
                    assert is_whole(found)
                    assert found.version > seen[number]
                    seen[number] = found.version
                    taken += 1


@pytest.mark.exclusive
def test_readers_carry_on_when_the_publisher_is_killed_and_starts_again(kind: str) -> None:
    with ExitStack() as stack:
        publisher = stack.enter_context(program("publish", kind, "127.0.0.1:0", 1_000_000))
        address = said(publisher)
        ctx = stack.enter_context(context(kind, address, role="reader"))
        polling = stack.enter_context(ParameterReader(ctx, "p"))
        waiting = stack.enter_context(ParameterReader(ctx, "p"))
        before = waiting.wait(timeout=SOON)
        until(lambda: polling.poll() is not None)
        assert before.version >= 1_000_000
        publisher.kill()
        publisher.wait()
        while polling.poll() is not None:  # what had come before
            pass
        again = stack.enter_context(program("publish", kind, address, 5))
        assert said(again) == address
        begun = time.monotonic()
        after = waiting.wait(timeout=SOON)
        while after.incarnation == before.incarnation:
            after = waiting.wait(timeout=SOON)
        until(lambda: (found := polling.poll()) is not None and found.version < 1_000_000)
        assert time.monotonic() - begun < 2
        assert after.version < 1_000_000
        assert after.incarnation > before.incarnation
        assert is_whole(after)


@pytest.mark.exclusive
def test_a_stopped_reader_stops_nobody(kind: str, server: ParameterServer, ctx: Context) -> None:
    with program("read", kind, server.address) as stopped, ParameterReader(ctx, "p") as reader:
        server.publish(0, arrays(0))
        assert said(stopped) == "0"
        stopped.send_signal(signal.SIGSTOP)
        slowest = 0.0
        for version in range(1, 200):
            begun = time.monotonic()
            server.publish(version, arrays(version))
            slowest = max(slowest, time.monotonic() - begun)
            assert reader.wait(timeout=SOON).version == version
        assert slowest < 1
        assert server.counts()["memory_bytes"] <= (MAX_LENT + 2) * one_block()
        stopped.send_signal(signal.SIGCONT)
        until(lambda: said(stopped) == "199")


def test_a_killed_reader_leaves_nothing_lent(kind: str, server: ParameterServer, ctx: Context) -> None:
    with program("read", kind, server.address) as killed:
        server.publish(0, arrays(0))
        assert said(killed) == "0"
        until(lambda: server.counts()["waiting"] == 1)
        killed.send_signal(signal.SIGSTOP)
        server.publish(1, arrays(1))  # it is sent to it, and never taken
        until(lambda: server.counts()["sent"] == 2)
        assert server.counts()["lent"] == 1
    until(lambda: server.counts()["lent"] == 0)
    until(lambda: server.counts()["readers"] == 0)


@pytest.mark.exclusive
def test_a_poll_does_not_wait_for_a_publisher_that_is_not_there(kind: str) -> None:
    with context(kind, "127.0.0.1:9", role="reader") as ctx, ParameterReader(ctx, "p") as reader:
        begun = time.monotonic()
        for _ in range(1000):
            assert reader.poll() is None
        assert time.monotonic() - begun < 1
        with pytest.raises(TimedOut, match="no connection to p at"):
            reader.wait(timeout=0.2)


def test_a_poll_connects_by_itself_as_soon_as_somebody_publishes(kind: str) -> None:
    with program("publish", kind, "127.0.0.1:0", 0) as publisher:
        address = said(publisher)
        publisher.kill()
        publisher.wait()
        with context(kind, address, role="reader") as ctx, ParameterReader(ctx, "p") as reader:
            assert reader.poll() is None
            with program("publish", kind, address, 0) as publisher:
                said(publisher)
                until(lambda: reader.poll() is not None)
                assert reader.shared_memory is (kind == "memory")


def test_nonsense_ends_the_link_and_nothing_else(server: ParameterServer, ctx: Context) -> None:
    server.publish(1, arrays(1))
    for header in (m.Header(9, body=b"\x92\x00\x00"), m.Header(1, body=b"nonsense"), m.Header(2)):
        link = Link(ctx, "p", "parameters")
        link.connect(SOON)
        before = server.counts()["refused"]
        link.send(header)
        until(lambda before=before: server.counts()["refused"] > before or server.counts()["readers"] == 0)
        link.close()
    with ParameterReader(ctx, "p") as reader:
        assert reader.wait(timeout=SOON).version == 1


def test_payloads_by_memory_do_not_pass_the_socket() -> None:
    with (
        context("memory", "127.0.0.1:0") as near,
        ParameterServer(near, "p") as server,
        context("memory", server.address, role="reader") as ctx,
        ParameterReader(ctx, "p") as reader,
    ):
        for version in range(20):
            server.publish(version, arrays(version))
            reader.wait(timeout=SOON)
        assert 0 < reader._link.bytes_on_socket < reader.counts()["bytes"] / 100


def test_a_context_closes_a_server_that_was_left_open(kind: str) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with context(kind, "127.0.0.1:0") as ctx:
        server = ParameterServer(ctx, "p")
        server.publish(1, arrays(1))
    with pytest.raises(UserError, match="the parameter server is closed"):
        server.publish(2, arrays(2))
    assert len(os.listdir("/proc/self/fd")) <= before
