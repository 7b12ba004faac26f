"""Episodes cut into sequences: every step is learned from, and what is not a step says so."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callsheet.errors import UserError
from callsheet.runtime.replay import cut


@given(
    steps=st.integers(1, 120),
    length=st.integers(1, 20),
    burn_in=st.integers(0, 10),
    data=st.data(),
)
def test_every_step_is_learned_from_with_its_past_before_it(
    steps: int, length: int, burn_in: int, data: st.DataObject
) -> None:
    stride = data.draw(st.integers(1, length))
    found = cut({"step": np.arange(1, steps + 1)}, length, burn_in=burn_in, stride=stride)
    learned = found["step"][found["learn"]]
    assert set(learned.tolist()) == set(range(1, steps + 1))
    if stride == length:
        assert sorted(learned.tolist()) == list(range(1, steps + 1)), "each once"
    assert (found["step"][~found["valid"]] == 0).all()
    for row, valid in zip(found["step"], found["valid"], strict=True):
        there = row[valid]
        assert np.array_equal(there, np.arange(there[0], there[0] + len(there)))
        assert len(row) == burn_in + length


def test_arrays_keep_their_types_and_inner_shapes() -> None:
    episode = {"pixels": np.ones((7, 4, 4), np.uint8), "reward": np.ones(7, np.float32)}
    found = cut(episode, 4, burn_in=2)
    assert {name: (array.shape, array.dtype.name) for name, array in found.items()} == {
        "pixels": ((2, 6, 4, 4), "uint8"),
        "reward": ((2, 6), "float32"),
        "valid": ((2, 6), "bool"),
        "learn": ((2, 6), "bool"),
    }


@pytest.mark.parametrize(
    ("episode", "options"),
    [
        ({"a": np.zeros(3), "b": np.zeros(4)}, {}),
        ({"a": np.zeros(0)}, {}),
        ({"valid": np.zeros(3)}, {}),
        ({"a": np.zeros(3)}, {"stride": 9}),
        ({"a": np.zeros(3)}, {"burn_in": -1}),
    ],
)
def test_what_cannot_be_cut_is_refused(episode: dict[str, np.ndarray], options: dict[str, int]) -> None:
    with pytest.raises(UserError):
        cut(episode, 4, **options)
