"""Returns are what their definitions say: against hand-computed numbers and against slow loops over single steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from callsheet.rl import returns
from callsheet.rl.returns import torch as torch_returns

Arrays = dict[str, NDArray[Any]]


def rollout(steps: int, batch: int, seed: int, *, ends: float = 0.3) -> Arrays:
    """Random steps; episodes end at random, and here and there a step is not valid."""
    rng = np.random.default_rng(seed)
    ended = rng.random((steps, batch)) < ends
    kind = rng.random((steps, batch)) < 0.5
    return {
        "rewards": rng.standard_normal((steps, batch), np.float32),
        "values": rng.standard_normal((steps + 1, batch), np.float32),
        "log_ratios": rng.standard_normal((steps, batch), np.float32),
        "terminated": (ended & kind).astype(np.uint8),
        "truncated": (ended & ~kind).astype(np.uint8),
        "valid": (rng.random((steps, batch)) < 0.8).astype(np.uint8),
    }


def column(length: int, **arrays: list[float]) -> Arrays:
    """One environment's rollout, with what is not given at its default."""
    given = {
        "rewards": [1.0] * length,
        "values": [0.0] * (length + 1),
        "terminated": [0] * length,
        "truncated": [0] * length,
        "valid": [1] * length,
        **arrays,
    }
    return {name: np.array(row, np.float32)[:, None] for name, row in given.items()}


def slow_excess(r: Arrays, t: int, b: int, gamma: float, lam: float, rho: float, c: float) -> float:
    """The sum of the definition: every later difference, weighted by all that lies between."""
    total, weight = 0.0, 1.0
    for k in range(t, len(r["rewards"])):
        if not r["valid"][k, b]:
            break
        ratio = float(np.exp(np.float64(r["log_ratios"][k, b])))
        after = 0.0 if r["terminated"][k, b] else float(r["values"][k + 1, b])
        total += weight * min(rho, ratio) * (r["rewards"][k, b] + gamma * after - r["values"][k, b])
        if r["terminated"][k, b] or r["truncated"][k, b]:
            break
        weight *= gamma * lam * min(c, ratio)
    return total


def slow_vtrace(
    r: Arrays, gamma: float, lam: float, rho: float, c: float, clip: float
) -> tuple[NDArray[Any], NDArray[Any]]:
    steps, batch = r["rewards"].shape
    targets, advantages = np.zeros((steps, batch)), np.zeros((steps, batch))
    for b in range(batch):
        for t in range(steps):
            targets[t, b] = r["values"][t, b] + slow_excess(r, t, b, gamma, lam, rho, c)
            if not r["valid"][t, b]:
                continue
            after = float(r["values"][t + 1, b])
            if r["terminated"][t, b]:
                after = 0.0
            elif not r["truncated"][t, b] and t + 1 < steps:
                after += slow_excess(r, t + 1, b, gamma, lam, rho, c)
            ratio = float(np.exp(np.float64(r["log_ratios"][t, b])))
            advantages[t, b] = min(clip, ratio) * (r["rewards"][t, b] + gamma * after - r["values"][t, b])
    return targets, advantages


def tensors(arrays: Arrays) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def without(arrays: Arrays, name: str) -> Arrays:
    return {key: array for key, array in arrays.items() if key != name}


sizes = st.tuples(st.integers(1, 20), st.integers(1, 4), st.integers(0, 2**32 - 1))


def test_gae_of_three_steps_by_hand() -> None:
    r = column(3, rewards=[1, 2, 3], values=[0.5, 1, 1.5, 2])
    targets, advantages = returns.gae(**r, gamma=0.9, lam=0.5)
    # Differences: 1 + 0.9*1 - 0.5 = 1.4; 2 + 0.9*1.5 - 1 = 2.35; 3 + 0.9*2 - 1.5 = 3.3. Factor: 0.45.
    expected = [1.4 + 0.45 * (2.35 + 0.45 * 3.3), 2.35 + 0.45 * 3.3, 3.3]
    np.testing.assert_allclose(advantages[:, 0], expected, rtol=1e-6)
    np.testing.assert_allclose(targets[:, 0], np.add(expected, [0.5, 1, 1.5]), rtol=1e-6)


def test_vtrace_of_two_steps_by_hand() -> None:
    r = column(2, rewards=[1, 2], values=[0.5, 1, 2], log_ratios=[np.log(0.5), np.log(3)])
    targets, advantages = returns.vtrace(**r, gamma=0.9, rho_clip=2.0, c_clip=1.0, advantage_clip=1.0)
    # Differences: 0.5 * (1 + 0.9 - 0.5) = 0.7; 2 * (2 + 1.8 - 1) = 5.6. Trace of the first step: 0.9 * 0.5.
    np.testing.assert_allclose(targets[:, 0], [0.5 + 0.7 + 0.45 * 5.6, 1 + 5.6], rtol=1e-6)
    np.testing.assert_allclose(advantages[:, 0], [0.5 * (1 + 0.9 * 6.6 - 0.5), 2 + 1.8 - 1], rtol=1e-6)


def test_n_step_returns_by_hand() -> None:
    r = without(column(4, rewards=[1, 2, 4, 8], terminated=[0, 0, 1, 0]), "values")
    rewards, steps, discounts = returns.n_step(**r, gamma=0.5, n=2)
    assert rewards[:, 0].tolist() == [1 + 1, 2 + 2, 4, 8]
    assert steps[:, 0].tolist() == [2, 2, 1, 1]  # the third ends the episode, the fourth the rollout
    assert discounts[:, 0].tolist() == [0.25, 0, 0, 0.5]


@pytest.mark.parametrize(
    ("ending", "worth"), [("terminated", 0.0), ("truncated", 100.0)], ids=["terminated", "truncated"]
)
def test_a_truncated_episode_is_worth_what_would_have_followed_and_a_terminated_one_nothing(
    ending: str, worth: float
) -> None:
    # The value 100 is of the observation that the ending step reached; what comes later is another episode's.
    r = column(3, values=[0, 100, 7, 7], valid=[1, 0, 1], **{ending: [1, 0, 0]})
    assert returns.gae(**r, gamma=1.0, lam=1.0).advantages[0, 0] == 1 + worth
    ratios = np.zeros((3, 1), np.float32)
    assert returns.vtrace(ratios, **r, gamma=1.0).values[0, 0] == 1 + worth
    found = returns.n_step(**without(r, "values"), gamma=1.0, n=3)
    assert found.steps[0, 0] == 1
    assert found.rewards[0, 0] + found.discounts[0, 0] * r["values"][1, 0] == 1 + worth


def test_steps_that_are_not_valid_contribute_nothing_whatever_they_hold() -> None:
    r = rollout(12, 3, seed=3)
    spoilt = {name: array.copy() for name, array in r.items()}
    for name in ("rewards", "log_ratios"):
        spoilt[name][r["valid"] == 0] = np.nan
    clean, same = returns.vtrace(**r, gamma=0.9), returns.vtrace(**spoilt, gamma=0.9)
    np.testing.assert_array_equal(clean.values, same.values)
    np.testing.assert_array_equal(clean.advantages, same.advantages)
    assert not clean.advantages[r["valid"] == 0].any()
    np.testing.assert_array_equal(clean.values[r["valid"] == 0], r["values"][:-1][r["valid"] == 0])
    plain = {name: spoilt[name] for name in r if name != "log_ratios"}
    assert np.isfinite(returns.gae(**plain, gamma=0.9, lam=0.9).advantages).all()
    assert np.isfinite(returns.n_step(**without(plain, "values"), gamma=0.9, n=3).rewards).all()


@settings(max_examples=60, deadline=None)
@given(sizes, st.floats(0.5, 1.0), st.floats(0.0, 1.0), st.tuples(*[st.floats(0.5, 3.0)] * 3))
def test_vtrace_is_its_definition(
    size: tuple[int, int, int], gamma: float, lam: float, clips: tuple[float, float, float]
) -> None:
    r = rollout(*size)
    rho, c, clip = clips
    targets, advantages = slow_vtrace(r, gamma, lam, rho, c, clip)
    options = {"gamma": gamma, "lam": lam, "rho_clip": rho, "c_clip": c, "advantage_clip": clip}
    found = returns.vtrace(**r, **options)
    np.testing.assert_allclose(found.values, targets, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found.advantages, advantages, rtol=1e-4, atol=1e-4)
    for other in (
        torch_returns.vtrace(**tensors(r), **options),
        torch_returns.vtrace_on_device(**tensors(r), **options),
    ):
        np.testing.assert_allclose(other.values, targets, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(other.advantages, advantages, rtol=1e-4, atol=1e-4)


@settings(max_examples=60, deadline=None)
@given(sizes, st.floats(0.5, 1.0), st.floats(0.0, 1.0))
def test_gae_is_its_definition(size: tuple[int, int, int], gamma: float, lam: float) -> None:
    r = rollout(*size)
    # With equal policies V-trace's targets are GAE's.
    same = {**r, "log_ratios": np.zeros_like(r["rewards"])}
    targets, _ = slow_vtrace(same, gamma, lam, 1.0, 1.0, 1.0)
    del r["log_ratios"]
    found = returns.gae(**r, gamma=gamma, lam=lam)
    np.testing.assert_allclose(found.values, targets, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found.advantages, targets - r["values"][:-1], rtol=1e-4, atol=1e-4)


@settings(max_examples=60, deadline=None)
@given(sizes, st.floats(0.5, 1.0), st.integers(1, 6))
def test_n_step_returns_are_their_definition(size: tuple[int, int, int], gamma: float, n: int) -> None:
    r = rollout(*size)
    found = returns.n_step(r["rewards"], r["terminated"], r["truncated"], r["valid"], gamma=gamma, n=n)
    steps, batch = r["rewards"].shape
    for b in range(batch):
        for t in range(steps):
            total, taken, discount = 0.0, 0, 1.0
            for k in range(t, min(t + n, steps)):
                if not r["valid"][k, b]:
                    break
                total += gamma ** (k - t) * r["rewards"][k, b]
                taken += 1
                discount *= 0.0 if r["terminated"][k, b] else gamma
                if r["terminated"][k, b] or r["truncated"][k, b]:
                    break
            assert found.steps[t, b] == taken
            assert found.rewards[t, b] == pytest.approx(total, rel=1e-4, abs=1e-4)
            assert found.discounts[t, b] == pytest.approx(discount, rel=1e-4, abs=1e-5)


def test_targets_in_pytorch_carry_no_gradient() -> None:
    r = tensors(rollout(4, 2, seed=0))
    r["values"].requires_grad_()
    r["log_ratios"].requires_grad_()
    assert not any(x.requires_grad for x in torch_returns.vtrace(**r, gamma=0.9))
    options = {"gamma": 0.9, "lam": 1.0, "rho_clip": 1.0, "c_clip": 1.0, "advantage_clip": 1.0}
    assert not any(x.requires_grad for x in torch_returns.vtrace_on_device(**r, **options))


def test_a_policy_that_changed_beyond_measure_does_not_overflow() -> None:
    r = column(2, log_ratios=[1000.0, -1000.0])
    found = returns.vtrace(**r, gamma=0.9)
    assert found.advantages[:, 0].tolist() == pytest.approx([1.0, 0.0])
