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
from callsheet.runtime.stream.delivery_log import MAX_INCARNATIONS, DeliveryLog, decode_acknowledgement
from callsheet.runtime.stream.packing import MAX_ITEMS, FramePacker
from callsheet.runtime.stream.retransmit_buffer import RetransmitBuffer

DTYPES = st.sampled_from(["u1", "?", "i2", "f4", "f8", "c16"])
SHAPES = st.lists(st.integers(0, 5), max_size=3).map(tuple)
ARRAYS = st.lists(st.tuples(DTYPES, SHAPES), min_size=1, max_size=5)


@given(ARRAYS, st.data())
def test_items_that_were_packed_are_found_again(
    arrays: list[tuple[str, tuple[int, ...]]], data: st.DataObject
) -> None:
    schema = Schema.of({f"a{n}": np.zeros(shape, dtype) for n, (dtype, shape) in enumerate(arrays)})
    packer = FramePacker(schema, 4096)
    assert 1 <= packer.capacity <= MAX_ITEMS
    assert packer.capacity == 1 or packer.nbytes <= 4096
    count = data.draw(st.integers(1, packer.capacity))
    memory = memoryview(bytearray(packer.nbytes))
    chance = np.random.default_rng(count)
    items = [
        {
            name: (chance.random(view.shape[1:]) * 100).astype(view.dtype)
            for view, name, _, _ in packer.views(memory)
        }
        for _ in range(count)
    ]
    slots = packer.views(memory)
    for at, item in enumerate(items):
        packer.put(slots, at, item)
    length = packer.compact(memory, count)
    found = schema.layout(count).views(memory[:length])
    for at, item in enumerate(items):
        for name, array in item.items():
            np.testing.assert_array_equal(found[name][at], array)


def test_plain_numbers_and_lists_are_taken_when_their_type_fits() -> None:
    schema = Schema.of({"flag": True, "steps": [1, 2]})
    packer = FramePacker(schema)
    memory = memoryview(bytearray(packer.nbytes))
    slots = packer.views(memory)
    packer.put(slots, 0, {"flag": False, "steps": [3, 4]})
    assert list(slots[1][0][0]) == [3, 4]
    with pytest.raises(UserError, match=r"steps: float64\[2\] does not match the schema"):
        packer.put(slots, 0, {"flag": False, "steps": [3.0, 4.0]})
    with pytest.raises(UserError, match=r"steps: int64\[3\] does not match the schema"):
        packer.put(slots, 0, {"flag": False, "steps": [3, 4, 5]})


@given(st.lists(st.tuples(st.integers(1, 400), st.integers(1, 400), st.integers(0, 3)), max_size=60))
def test_what_is_kept_stays_as_it_is_until_it_is_durable(steps: list[tuple[int, int, int]]) -> None:
    ring = RetransmitBuffer(1024)
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
            ring.discard_up_to(last)
            model = [one for one in model if one[0] > last]
    assert ring.add(ring.size + 1) is None
    ring.close()


def test_what_is_kept_can_be_counted_by_another_thread_while_it_changes() -> None:
    ring, counted = RetransmitBuffer(64 * 1024), threading.Event()
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def change() -> None:
        sequence = 0
        while not counted.is_set():
            chunk = ring.add(64)
            if chunk is None:
                ring.discard_up_to(sequence - 500)
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


def test_a_delivery_log_goes_on_from_its_cursor() -> None:
    delivery_log = DeliveryLog()
    first = delivery_log.sender("actor/0").progress(100)
    first.received, first.consumed = 7, 5
    assert delivery_log.cursor() == {"actor/0": [[100, 5]]}
    assert delivery_log.mark_durable({"actor/0": [[100, 4]], "nobody": [[1, 1]]}) == {"actor/0"}
    assert delivery_log.mark_durable({"actor/0": [[100, 3]]}) == set(), "what is durable stays so"
    assert decode_acknowledgement(delivery_log.acknowledgement("actor/0", 100)).consumed == 5, (
        "what was not read may still be dropped"
    )
    assert decode_acknowledgement(delivery_log.acknowledgement("actor/0", 200)).durable == ((100, 4),)
    assert delivery_log.acknowledgement("actor/1", 1) == b""

    again = DeliveryLog(json.loads(json.dumps(delivery_log.cursor())))
    acknowledgement = decode_acknowledgement(again.acknowledgement("actor/0", 100))
    assert (acknowledgement.consumed, acknowledgement.durable) == (5, ((100, 5),))


def test_the_latest_starts_of_a_sender_are_remembered() -> None:
    delivery_log = DeliveryLog()
    for incarnation in range(1, 40):
        progress = delivery_log.sender("actor/0").progress(incarnation)
        progress.consumed = incarnation
    assert [start for start, _ in delivery_log.cursor()["actor/0"]] == list(range(40 - MAX_INCARNATIONS, 40))


def test_marks_that_make_no_sense_are_refused() -> None:
    with pytest.raises(BadMessage, match="acknowledgement that cannot be read"):
        decode_acknowledgement(b"\xc1")
