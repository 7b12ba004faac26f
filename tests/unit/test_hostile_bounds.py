"""What peers can make a process remember has an end, and what they call themselves is not believed."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from callsheet.rl.roles.learner_rollouts import _index_of
from callsheet.runtime.link.endpoint_handler import LogThrottle
from callsheet.runtime.policy.client_states import ClientRegistry, RecurrentStates, StatesFull
from callsheet.runtime.schema import Schema
from callsheet.runtime.stream import delivery_log as module
from callsheet.runtime.stream.delivery_log import DeliveryLog


def test_a_delivery_log_forgets_those_first_that_have_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SENDERS", 4)
    delivery_log = DeliveryLog()
    for name in "abcd":
        delivery_log.sender(name).progress(1).received = 5
    delivery_log.on_disconnect("b")
    assert delivery_log.sender("e").number == 1, "the place of the one that has gone"
    assert delivery_log.names == ["a", "e", "c", "d"]
    assert delivery_log.progress("b", 1) is None
    assert delivery_log.progress("a", 1) is not None
    for number in range(100):
        delivery_log.sender(f"new-{number}").progress(1).received = 1
        delivery_log.on_disconnect(f"new-{number}")
    assert len(delivery_log.names) == 4
    assert {"c", "d", "e"} < set(delivery_log.names), "those that are connected stay"


def test_a_delivery_log_does_not_remember_a_sender_of_nothing() -> None:
    delivery_log = DeliveryLog({"old": [[7, 3]]})
    delivery_log.sender("new").progress(1)
    delivery_log.on_disconnect("new")
    delivery_log.on_disconnect("old")
    delivery_log.on_disconnect("unknown")
    assert delivery_log.names == ["old", ""]
    assert delivery_log.sender("next").number == 1
    assert delivery_log.cursor() == {"old": [[7, 3]]}


def test_refusals_are_logged_once_and_a_hundred_at_most() -> None:
    noted = LogThrottle()
    assert noted.should_log("x")
    assert not noted.should_log("x")
    assert sum(noted.should_log(f"reason {number}") for number in range(1000)) == 99


def test_states_of_clients_that_have_gone_make_room_for_those_that_come() -> None:
    slots = RecurrentStates({"h": np.zeros(2)}, Schema.of({"y": np.zeros(1)}), limit=4)
    clients = ClientRegistry(slots)
    for name in ("first", "second"):
        client = clients.connect(name, 1)
        client.lane(0).slots = slots.allocate(2)
        clients.disconnect(client)
    with pytest.raises(StatesFull):
        slots.allocate(1)
    assert clients.evict_disconnected()
    assert slots.used == 2
    assert clients.connect("second", 1).lane(0).slots is not None, "the one that went later has its states"
    assert not clients.evict_disconnected()


def test_layouts_that_are_remembered_have_an_end() -> None:
    wide = Schema.of({f"x{number}": np.zeros(1) for number in range(4096)})
    for count in range(1, 40):
        wide.layout(count)
    assert len(wide._layouts) <= 16


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("actor/3/actor", 3),
        ("actor/3", 3),
        ("actor/3/actor#2", 3),
        ("actor", -1),
        ("actor/x/actor", -1),
        ("actor/-1/actor", -1),
        ("actor/" + "9" * 200, -1),
        ("", -1),
    ],
)
def test_a_name_that_says_no_index_is_nobodys(name: str, index: int) -> None:
    assert _index_of(name) == index


@pytest.mark.parametrize(
    "told",
    [
        [["x", "V8", []]],
        [["x", "O", []]],
        [["x", ">f4", []]],
        [["x", "<f4", [-1]]],
        [["x", "<f4", [1] * 17]],
        [["x", "<f4", [1 << 63]]],
        [["x", "<f8", [1 << 28]]],
        [["x", "<f4", [None, 1 << 40]]],
        [["x", "<f4", []], ["x", "<f4", []]],
        [],
        7,
    ],
    ids=str,
)
def test_a_schema_that_no_frame_could_have_is_refused(told: object) -> None:
    with pytest.raises(ValueError, match=r"schema|items of"):
        Schema.decode(msgspec.msgpack.encode(told))
