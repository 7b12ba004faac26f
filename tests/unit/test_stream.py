"""The pieces of a stream: frames of many items, memory that is kept until it is durable, and who sent what."""

from __future__ import annotations

import json
import sys
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callsheet.errors import UserError
from callsheet.runtime.link.protocol import BadMessage
from callsheet.runtime.schema import Schema
from callsheet.runtime.stream.delivery_log import MOST_INCARNATIONS, Ledger, marks_of
from callsheet.runtime.stream.packing import MOST_ITEMS, Packing
from callsheet.runtime.stream.retransmit_buffer import Ring

DTYPES = st.sampled_from(["u1", "?", "i2", "f4", "f8", "c16"])
SHAPES = st.lists(st.integers(0, 5), max_size=3).map(tuple)
ARRAYS = st.lists(st.tuples(DTYPES, SHAPES), min_size=1, max_size=5)


@given(ARRAYS, st.data())
def test_items_that_were_packed_are_found_again(
    arrays: list[tuple[str, tuple[int, ...]]], data: st.DataObject
) -> None:
    schema = Schema.of({f"a{n}": np.zeros(shape, dtype) for n, (dtype, shape) in enumerate(arrays)})
    packing = Packing(schema, 4096)
    assert 1 <= packing.capacity <= MOST_ITEMS
    assert packing.capacity == 1 or packing.nbytes <= 4096
    count = data.draw(st.integers(1, packing.capacity))
    memory = memoryview(bytearray(packing.nbytes))
    chance = np.random.default_rng(count)
    items = [
        {
            name: (chance.random(view.shape[1:]) * 100).astype(view.dtype)
            for view, name, _, _ in packing.slots(memory)
        }
        for _ in range(count)
    ]
    slots = packing.slots(memory)
    for at, item in enumerate(items):
        packing.put(slots, at, item)
    length = packing.close(memory, count)
    found = schema.layout(count).views(memory[:length])
    for at, item in enumerate(items):
        for name, array in item.items():
            np.testing.assert_array_equal(found[name][at], array)


def test_plain_numbers_and_lists_are_taken_when_their_type_fits() -> None:
    schema = Schema.of({"flag": True, "steps": [1, 2]})
    packing = Packing(schema)
    memory = memoryview(bytearray(packing.nbytes))
    slots = packing.slots(memory)
    packing.put(slots, 0, {"flag": False, "steps": [3, 4]})
    assert list(slots[1][0][0]) == [3, 4]
    with pytest.raises(UserError, match=r"steps: float64\[2\] is not as agreed"):
        packing.put(slots, 0, {"flag": False, "steps": [3.0, 4.0]})
    with pytest.raises(UserError, match=r"steps: int64\[3\] is not as agreed"):
        packing.put(slots, 0, {"flag": False, "steps": [3, 4, 5]})


@given(st.lists(st.tuples(st.integers(1, 400), st.integers(1, 400), st.integers(0, 3)), max_size=60))
def test_what_is_kept_stays_as_it_is_until_it_is_durable(steps: list[tuple[int, int, int]]) -> None:
    ring = Ring(1024)
    model: list[tuple[int, bytes]] = []
    sequence = 0
    for room, used, drop in steps:
        chunk = ring.add(room)
        if chunk is None:
            assert model, "an empty ring takes whatever is smaller than itself"
        else:
            sequence += 1
            chunk.length, chunk.first, chunk.count = min(used, room), sequence, 1
            text = bytes([sequence % 256]) * chunk.length
            ring.view(chunk)[: chunk.length] = text
            ring.trim(chunk)
            model.append((sequence, text))
        assert [(c.first, bytes(ring.view(c)[: c.length])) for c in ring.chunks] == model
        assert ring.used == sum(len(text) for _, text in model) <= ring.size
        if drop and model:
            last = model[min(drop, len(model)) - 1][0]
            ring.drop(last)
            model = [one for one in model if one[0] > last]
    assert ring.add(ring.size + 1) is None
    ring.close()


def test_what_is_kept_can_be_counted_by_another_thread_while_it_changes() -> None:
    ring, counted = Ring(64 * 1024), threading.Event()
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def change() -> None:
        sequence = 0
        while not counted.is_set():
            chunk = ring.add(64)
            if chunk is None:
                ring.drop(sequence - 500)
                continue
            sequence += 1
            chunk.first, chunk.count, chunk.length = sequence, 1, 64

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(2000):
            assert 0 <= ring.used <= ring.size
    finally:
        counted.set()
        thread.join()
        sys.setswitchinterval(before)


def test_a_ledger_goes_on_from_its_cursor() -> None:
    ledger = Ledger()
    first = ledger.sender("actor/0").track(100)
    first.taken, first.read = 7, 5
    assert ledger.cursor() == {"actor/0": [[100, 5]]}
    assert ledger.durable({"actor/0": [[100, 4]], "nobody": [[1, 1]]}) == {"actor/0"}
    assert ledger.durable({"actor/0": [[100, 3]]}) == set(), "what is durable stays so"
    assert marks_of(ledger.marks("actor/0", 100)).taken == 5, "what was not read may still be dropped"
    assert marks_of(ledger.marks("actor/0", 200)).durable == ((100, 4),)
    assert ledger.marks("actor/1", 1) == b""

    again = Ledger(json.loads(json.dumps(ledger.cursor())))
    marks = marks_of(again.marks("actor/0", 100))
    assert (marks.taken, marks.durable) == (5, ((100, 5),))


def test_the_latest_starts_of_a_sender_are_remembered() -> None:
    ledger = Ledger()
    for incarnation in range(1, 40):
        track = ledger.sender("actor/0").track(incarnation)
        track.read = incarnation
    assert [start for start, _ in ledger.cursor()["actor/0"]] == list(range(40 - MOST_INCARNATIONS, 40))


def test_marks_that_make_no_sense_are_refused() -> None:
    with pytest.raises(BadMessage, match="marks that cannot be read"):
        marks_of(b"\xc1")
