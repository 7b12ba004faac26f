"""A policy server and its clients: who asked gets the answer, once, whatever happens to the others."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "programs"))
from policy import DONE, SEEN, STATE, add_up, context, echo

from callsheet.errors import UserError
from callsheet.runtime.context import Context
from callsheet.runtime.link import protocol as m
from callsheet.runtime.link.connector import Refused
from callsheet.runtime.link.link import Link, TimedOut
from callsheet.runtime.policy import PolicyClient, PolicyFailed, PolicyServer, client_states
from callsheet.runtime.schema import Schema
from callsheet.runtime.stop import Stopping

PROGRAM = Path(__file__).parent.parent / "programs" / "policy.py"
SOON = 10.0


@pytest.fixture(params=["memory", "network", "encrypted"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Serving(threading.Thread):
    """A policy server in a thread, until its context is stopped."""

    def __init__(self, ctx: Context, function: Callable[..., Any], **options: Any) -> None:
        super().__init__(daemon=True)
        options = {"max_batch": 64, "schema_in": SEEN, "schema_out": DONE, **options}
        self.server = PolicyServer(ctx, "p", function, **options)
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.server.serve()
        except Stopping:
            pass
        except RuntimeError as error:
            self.error = error
        finally:
            self.server.close()


@contextmanager
def serving(
    kind: str, function: Callable[..., Any] = echo, **options: Any
) -> Iterator[tuple[Serving, Context]]:
    """A server, and a context for its clients."""
    with context(kind, "127.0.0.1:0") as there:
        one = Serving(there, function, **options)
        try:
            with context(kind, one.server.address, role="simulator") as here:
                yield one, here
        finally:
            there.stop.set()
            one.join(SOON)


def seen(*values: float) -> dict[str, np.ndarray]:
    return {"obs": np.array([[value] * 3 for value in values], "f4")}


def until(condition: Callable[[], object], limit: float = SOON) -> None:
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


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


def test_who_asks_gets_the_answer(kind: str) -> None:
    with serving(kind) as (serving_, ctx), PolicyClient(ctx, "p") as client:
        serving_.server.version = 42
        actions = client.act(seen(1, 2, 3), timeout=SOON)
        np.testing.assert_array_equal(actions.arrays["action"], [3, 6, 9])
        np.testing.assert_array_equal(actions.arrays["obs"], seen(1, 2, 3)["obs"])
        assert actions.version == 42
        assert actions.incarnation == serving_.server.incarnation
        assert client.shared_memory is (kind == "memory")


def test_sixty_four_clients_are_answered_in_few_calls_and_none_gets_anothers_answer(kind: str) -> None:
    with serving(kind, max_wait=0.05) as (serving_, ctx), ExitStack() as stack:
        clients = [stack.enter_context(PolicyClient(ctx, "p")) for _ in range(64)]
        for number, client in enumerate(clients):
            client.act(seen(number), timeout=SOON)
        before = serving_.server.counts()
        for turn in range(10):
            tickets = [
                client.submit(seen(number + turn), timeout=SOON) for number, client in enumerate(clients)
            ]
            for number, (client, ticket) in enumerate(zip(clients, tickets, strict=True)):
                answer = client.result(ticket, timeout=SOON)
                assert answer.arrays["action"].tolist() == [3 * (number + turn)]
        after = serving_.server.counts()
        assert after["requests"] - before["requests"] == 640
        assert after["batches"] - before["batches"] < 200
        assert after["clients"] == 64


def test_a_batch_is_never_larger_than_allowed(kind: str) -> None:
    sizes = []

    def note(observations: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        sizes.append(len(observations["obs"]))
        return echo(observations)

    with serving(kind, note, max_batch=5, max_wait=0.2) as (_, ctx), ExitStack() as stack:
        clients = [stack.enter_context(PolicyClient(ctx, "p")) for _ in range(6)]
        for _ in range(5):
            tickets = [client.submit(seen(1, 2), timeout=SOON) for client in clients]
            for client, ticket in zip(clients, tickets, strict=True):
                assert client.result(ticket, timeout=SOON).arrays["action"].tolist() == [3, 6]
    assert sum(sizes) == 60
    assert max(sizes) == 4  # two requests of two; a third does not fit


def test_nobody_waits_for_the_deadline_when_all_have_asked(kind: str) -> None:
    with serving(kind) as (serving_, ctx), ExitStack() as stack:
        clients = [stack.enter_context(PolicyClient(ctx, "p")) for _ in range(2)]
        for client in clients:  # the server knows both
            client.act(seen(1), timeout=SOON)
        serving_.server.max_wait = 60
        for _ in range(3):
            tickets = [client.submit(seen(1), timeout=SOON) for client in clients]
            for client, ticket in zip(clients, tickets, strict=True):
                client.result(ticket, timeout=SOON)


def test_a_batch_that_is_not_full_is_answered_when_it_has_waited_long_enough(kind: str) -> None:
    with serving(kind, max_wait=0.3) as (_, ctx), ExitStack() as stack:
        clients = [stack.enter_context(PolicyClient(ctx, "p")) for _ in range(2)]
        for client in clients:
            client.act(seen(1), timeout=SOON)
        begun = time.monotonic()
        clients[0].act(seen(1), timeout=SOON)
        assert time.monotonic() - begun >= 0.29


def test_while_one_half_of_the_environments_waits_the_other_half_steps(kind: str) -> None:
    with serving(kind) as (_, ctx), PolicyClient(ctx, "p") as client:
        tickets = [client.submit(seen(half), lane=half, timeout=SOON) for half in (0, 1)]
        for turn in range(20):
            for half in (0, 1):
                answer = client.result(tickets[half], timeout=SOON)
                assert answer.arrays["action"].tolist() == [3 * (half + 2 * turn)]
                tickets[half] = client.submit(seen(half + 2 * turn + 2), lane=half, timeout=SOON)
        late, early = client.result(tickets[1], timeout=SOON), client.result(tickets[0], timeout=SOON)
        assert (early.arrays["action"].tolist(), late.arrays["action"].tolist()) == ([120], [123])


def test_the_number_of_environments_may_change_without_a_state(kind: str) -> None:
    with serving(kind) as (_, ctx), PolicyClient(ctx, "p") as client:
        for count in (1, 5, 2, 64):
            assert len(client.act(seen(*range(count)), timeout=SOON).arrays["action"]) == count


def test_every_environment_has_a_state_of_its_own(kind: str) -> None:
    with serving(kind, add_up, state=STATE) as (serving_, ctx), ExitStack() as stack:
        first, second = (stack.enter_context(PolicyClient(ctx, "p")) for _ in range(2))
        for turn in range(1, 6):
            assert first.act(seen(1, 10), timeout=SOON).arrays["action"].tolist() == [turn, 10 * turn]
            assert second.act(seen(7), timeout=SOON).arrays["action"].tolist() == [7 * turn]
            ticket = first.submit(seen(100), lane=1, timeout=SOON)
            assert first.result(ticket, timeout=SOON).arrays["action"].tolist() == [100 * turn]
        anew = first.act(seen(1, 10), reset=np.array([True, False]), timeout=SOON)
        assert anew.arrays["action"].tolist() == [1, 60]
        assert first.act(seen(1, 10), timeout=SOON).arrays["action"].tolist() == [2, 70]
        assert serving_.server.counts()["states"] == 4


def test_a_lane_with_states_keeps_its_number_of_environments(kind: str) -> None:
    with serving(kind, add_up, state=STATE) as (_, ctx), PolicyClient(ctx, "p") as client:
        client.act(seen(1, 2), timeout=SOON)
        with pytest.raises(PolicyFailed, match="lane 0 has 2 environments, and this request 3"):
            client.act(seen(1, 2, 3), timeout=SOON)
        assert client.act(seen(1, 2), timeout=SOON).arrays["action"].tolist() == [2, 4]


def test_states_are_freed_when_their_client_has_gone(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_states, "KEEP_SECONDS", 0.1)
    with serving(kind, add_up, state=STATE) as (serving_, ctx), PolicyClient(ctx, "p") as staying:
        staying.act(seen(1), timeout=SOON)
        with PolicyClient(ctx, "p") as leaving:
            leaving.act(seen(1, 2, 3), timeout=SOON)
            assert serving_.server.counts()["states"] == 4

        def freed() -> bool:
            staying.act(seen(1), timeout=SOON)
            return serving_.server.counts()["states"] == 1

        until(freed)


def test_a_client_that_starts_again_begins_anew(kind: str) -> None:
    with serving(kind, add_up, state=STATE) as (serving_, _):
        for _ in range(3):
            with (
                context(kind, serving_.server.address, role="simulator") as ctx,
                PolicyClient(ctx, "p") as client,
            ):
                assert client.act(seen(5), timeout=SOON).arrays["action"].tolist() == [5]
        assert serving_.server.counts()["states"] == 1


def test_a_request_whose_answer_was_lost_is_not_computed_twice(kind: str) -> None:
    with serving(kind, add_up, state=STATE) as (serving_, ctx), PolicyClient(ctx, "p") as client:
        client.act(seen(1), timeout=SOON)
        for turn in range(2, 6):
            ticket = client.submit(seen(1), timeout=SOON)
            until(lambda turn=turn: serving_.server.counts()["requests"] == turn)
            client._link._disconnected()
            assert client.result(ticket, timeout=SOON).arrays["action"].tolist() == [turn]
        assert serving_.server.counts()["answered_again"] == 4
        assert serving_.server.counts()["requests"] == 5


@pytest.mark.exclusive
def test_requests_go_on_when_the_server_is_killed_and_started_again(kind: str) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(program("serve", kind, "127.0.0.1:0"))
        address = said(server)
        ctx = stack.enter_context(context(kind, address, role="simulator"))
        client = stack.enter_context(PolicyClient(ctx, "p"))
        before = client.act(seen(1), timeout=SOON)
        server.send_signal(signal.SIGSTOP)
        ticket = client.submit(seen(5), timeout=SOON)
        server.kill()
        server.wait()
        again = stack.enter_context(program("serve", kind, address))
        assert said(again) == address
        begun = time.monotonic()
        after = client.result(ticket, timeout=SOON)
        assert time.monotonic() - begun < 2
        assert after.arrays["action"].tolist() == [5]
        assert after.incarnation > before.incarnation
        assert client.act(seen(5), timeout=SOON).arrays["action"].tolist() == [10]


def test_a_stopped_client_and_a_killed_one_stop_nobody(kind: str) -> None:
    with (
        serving(kind, add_up, state=STATE) as (serving_, ctx),
        program("ask", kind, serving_.server.address) as other,
        PolicyClient(ctx, "p") as client,
    ):
        said(other)
        other.send_signal(signal.SIGSTOP)
        for turn in range(1, 50):
            assert client.act(seen(1), timeout=SOON).arrays["action"].tolist() == [turn]
        other.kill()
        for turn in range(50, 100):
            assert client.act(seen(1), timeout=SOON).arrays["action"].tolist() == [turn]
        until(lambda: serving_.server.counts()["clients"] == 1)


def test_a_slow_answer_times_out_and_can_be_waited_for_again(kind: str) -> None:
    go = threading.Event()

    def slow(observations: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        go.wait(SOON)
        return echo(observations)

    with serving(kind, slow) as (_, ctx), PolicyClient(ctx, "p") as client:
        ticket = client.submit(seen(1), timeout=SOON)
        with pytest.raises(TimedOut):
            client.result(ticket, timeout=0.1)
        go.set()
        assert client.result(ticket, timeout=SOON).arrays["action"].tolist() == [3]
        go.clear()
        with pytest.raises(TimedOut):
            client.act(seen(2), timeout=0.1)
        go.set()
        assert client.act(seen(3), timeout=SOON).arrays["action"].tolist() == [9]
        with pytest.raises(UserError, match="was already answered or discarded"):
            client.result(ticket)


def test_a_wait_ends_when_the_process_should_stop(kind: str) -> None:
    with context(kind, "127.0.0.1:9", role="simulator") as ctx, PolicyClient(ctx, "p") as client:
        threading.Timer(0.2, ctx.stop.set).start()
        with pytest.raises(Stopping):
            client.act(seen(1), timeout=SOON)


def test_a_policy_that_fails_tells_those_who_asked_and_goes_on(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    def moody(observations: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        if observations["obs"][0, 0] < 0:
            raise RuntimeError("below zero")
        return echo(observations)

    with serving(kind, moody, max_failures=3) as (serving_, ctx), PolicyClient(ctx, "p") as client:
        for _ in range(2):
            with pytest.raises(PolicyFailed, match="RuntimeError: below zero"):
                client.act(seen(-1), timeout=SOON)
        assert client.act(seen(1), timeout=SOON).arrays["action"].tolist() == [3]
        for _ in range(3):
            with pytest.raises(PolicyFailed):
                client.act(seen(-1), timeout=SOON)
        serving_.join(SOON)
        assert isinstance(serving_.error, RuntimeError)
    assert sum("the policy function failed" in record.message for record in caplog.records) == 1


def test_a_failure_does_not_move_states_on(kind: str) -> None:
    def moody(
        observations: dict[str, np.ndarray], states: dict[str, np.ndarray]
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        if observations["obs"][0, 0] < 0:
            states["sum"] += 1000
            raise RuntimeError("below zero")
        return add_up(observations, states)

    with serving(kind, moody, state=STATE) as (_, ctx), PolicyClient(ctx, "p") as client:
        client.act(seen(1), timeout=SOON)
        with pytest.raises(PolicyFailed):
            client.act(seen(-1), timeout=SOON)
        assert client.act(seen(1), timeout=SOON).arrays["action"].tolist() == [2]


@pytest.mark.parametrize(
    ("returned", "told"),
    [
        ({"action": np.zeros(1)}, "answers lack 'obs'"),
        ({"action": np.zeros(2), "obs": np.zeros((1, 3))}, r"returned 'action' as float64\[2\]"),
        ({"action": np.zeros(1), "obs": np.zeros((1, 3), "c8")}, r"returned 'obs' as complex64\[1, 3\]"),
        (
            {"action": np.zeros(1), "obs": np.zeros((1, 3)), "x": 1},
            "returned 'x', which is not in the schema of its answers",
        ),
        (None, "returned NoneType for its answers"),
    ],
)
def test_what_a_policy_returns_is_checked(returned: object, told: str) -> None:
    with (
        serving("memory", lambda observations: returned) as (_, ctx),
        PolicyClient(ctx, "p") as client,
        pytest.raises(PolicyFailed, match=told),
    ):
        client.act(seen(1), timeout=SOON)


def test_other_observations_are_refused_and_both_sides_say_the_difference(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with serving(kind) as (_, ctx), PolicyClient(ctx, "p") as client, pytest.raises(Refused) as caught:
        client.act({"obs": np.zeros((1, 4), "f4")}, timeout=SOON)
    assert "obs: float32[4] against obs: float32[3]" in caught.value.message
    assert any("obs: float32[3] against obs: float32[4]" in record.message for record in caplog.records)


def test_mistakes_in_a_request_are_told_before_it_is_sent(kind: str) -> None:
    with serving(kind, max_batch=8) as (serving_, ctx), PolicyClient(ctx, "p") as client:
        with pytest.raises(UserError, match=r"array 'obs' has the shape \[\]"):
            client.act({"obs": np.float32(0)})
        client.act(seen(1), timeout=SOON)
        with pytest.raises(UserError, match="a request of 9 observations"):
            client.act(seen(*range(9)))
        with pytest.raises(UserError, match="array 'obs' is missing"):
            client.act({"other": np.zeros((1, 3), "f4")})
        with pytest.raises(UserError, match=r"array obs: float64\[1, 3\] does not match the schema"):
            client.act({"obs": np.zeros((1, 3))})
        with pytest.raises(UserError, match=r"reset is float64\[1\]"):
            client.act(seen(1), reset=np.zeros(1))
        with pytest.raises(UserError, match="lane is 8"):
            client.submit(seen(1), lane=8)
        ticket = client.submit(seen(1), timeout=SOON)
        with pytest.raises(UserError, match="lane 0 already waits for an answer"):
            client.submit(seen(1))
        client.result(ticket, timeout=SOON)
        with pytest.raises(UserError, match="was already answered or discarded"):
            client.result(ticket)
        assert serving_.server.counts()["messages"] == 2


def test_a_schema_with_free_lengths_is_no_schema_of_a_policy(kind: str) -> None:
    free = Schema.of({"obs": np.zeros(3, "f4")}, free={"obs": (0,)})
    with (
        context(kind, "127.0.0.1:0") as ctx,
        pytest.raises(UserError, match="schema_in has axes of variable length"),
    ):
        PolicyServer(ctx, "p", echo, max_batch=1, schema_in=free, schema_out=DONE)


@pytest.mark.parametrize(
    "header",
    [
        m.Header(1, SEEN.hash, 1, 1, body=b""),
        m.Header(1, SEEN.hash, 1, 1, body=b"\x09"),
        m.Header(1, SEEN.hash, 0, 1, body=b"\x00"),
        m.Header(1, SEEN.hash, 1, 1, body=b"\x00\x01\x01"),
        m.Header(1, 7, 1, 1, body=b"\x00"),
        m.Header(9, SEEN.hash, 1, 1, body=b"\x00"),
    ],
)
def test_nonsense_ends_the_link_and_nothing_else(header: m.Header) -> None:
    with serving("memory") as (serving_, ctx), PolicyClient(ctx, "p") as honest:
        honest.act(seen(1), timeout=SOON)
        link = Link(ctx, "p", "policy", schema=SEEN)
        link.connect(SOON)
        link.post(header, link.reserve(64, SOON), 64)
        until(lambda: serving_.server.counts()["refused"] >= 1)
        link.close()
        assert honest.act(seen(1), timeout=SOON).arrays["action"].tolist() == [3]


def test_memory_does_not_grow_with_requests(kind: str) -> None:
    with serving(kind, add_up, state=STATE) as (_, ctx), PolicyClient(ctx, "p") as client:
        asked = seen(1, 2)
        for _ in range(300):
            client.act(asked, timeout=SOON)
        tracemalloc.start()
        try:
            client.act(asked, timeout=SOON)
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(1000):
                client.act(asked, timeout=SOON)
            grown = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        assert grown < 20_000
