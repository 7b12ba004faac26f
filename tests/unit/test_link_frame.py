"""Payloads that came in parts: whatever is copied from them is what it would be from one piece."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callsheet.runtime.link.frame import MultipartPayload
from callsheet.runtime.link.protocol import MAX_PART_BYTES, BadMessage

WHOLE = np.random.default_rng(1).integers(0, 256, 3 * MAX_PART_BYTES + 1000, dtype=np.uint8)


def in_parts(size: int = WHOLE.size) -> MultipartPayload:
    view = WHOLE[:size].data
    return MultipartPayload([view[at : at + MAX_PART_BYTES] for at in range(0, size, MAX_PART_BYTES)], size)


def test_joined_parts_are_the_payload() -> None:
    assert bytes(in_parts().join()) == WHOLE.tobytes()
    assert len(in_parts()) == WHOLE.size


@settings(max_examples=200, deadline=None)
@given(
    start=st.integers(0, 2 * MAX_PART_BYTES).map(lambda at: at // 64 * 64),
    shape=st.lists(st.integers(1, 40), min_size=0, max_size=3),
    wide=st.integers(1, 20_000),
    dtype=st.sampled_from(["u1", "<f2", "<f4", "<i8", "<c16", "?"]),
    strided=st.booleans(),
)
def test_an_array_is_copied_from_wherever_it_lies(
    start: int, shape: list[int], wide: int, dtype: str, strided: bool
) -> None:
    whole = (*shape, wide)
    size = int(np.prod(whole)) * np.dtype(dtype).itemsize
    if start + size > WHOLE.size:
        whole, size = (7,), 7 * np.dtype(dtype).itemsize
    right = np.ndarray(whole, dtype, WHOLE.data, start)
    # Items that are joined along an axis of theirs lie in strides, as [T, n * B, ...] does.
    into = np.zeros((*whole[:1], 3, *whole[1:]), dtype)[:, 1] if strided else np.zeros(whole, dtype)
    in_parts().copy(start, into)
    assert into.tobytes() == right.tobytes()


def test_parts_of_another_size_are_refused() -> None:
    view = WHOLE.data
    with pytest.raises(BadMessage, match="a part of 5 bytes where"):
        MultipartPayload([view[:5], view[5 : MAX_PART_BYTES + 5]], MAX_PART_BYTES + 5)
