"""Actors' samples in NumPy and learners' distributions in PyTorch agree, with each other and with `torch.distributions`."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import distributions as reference

from callsheet.rl.nets import sampling
from callsheet.rl.nets.sampling import MAX_LOG_STD, MIN_LOG_STD, ActionScaling
from callsheet.rl.nets.torch import distributions
from callsheet.rl.spaces import Continuous

ARM = Continuous((-2.0, 0.0, -math.inf), (2.0, 10.0, math.inf))
"""A range of its own for each number, the last without limits."""


def scale_of(scaling: ActionScaling) -> distributions.TensorScaling:
    middle, half = torch.from_numpy(scaling.middle), torch.from_numpy(scaling.half)
    return distributions.TensorScaling(middle, half, scaling.trivial)


seeds = st.integers(0, 2**32 - 1)


@settings(max_examples=50, deadline=None)
@given(seeds, st.integers(1, 9), st.integers(1, 6), st.booleans())
def test_choices_are_alike_everywhere(seed: int, actions: int, batch: int, masked: bool) -> None:
    rng = np.random.default_rng(seed)
    logits = 3 * rng.standard_normal((batch, actions), np.float32)
    masks = rng.integers(0, 2, logits.shape).astype(np.uint8)
    masks[..., 0] |= masks.sum(-1) == 0  # one action is always allowed
    masks = masks if masked else np.ones_like(masks)
    action, logp = sampling.CategoricalSampler(actions, batch).sample(
        np.array(logits.T, order="C"), rng, masks=masks if masked else None
    )
    learned = distributions.Categorical(torch.from_numpy(logits), torch.from_numpy(masks) if masked else None)
    allowed = torch.from_numpy(masks).bool()
    truth = reference.Categorical(
        logits=torch.from_numpy(logits).masked_fill(~allowed, -math.inf), validate_args=False
    )
    assert np.take_along_axis(masks, action[..., None], axis=-1).all()
    expected = truth.log_prob(torch.from_numpy(action))
    np.testing.assert_allclose(logp, expected, atol=1e-5)
    np.testing.assert_allclose(learned.log_prob(torch.from_numpy(action)), expected, atol=1e-5)
    entropy = -(truth.probs * truth.probs.clamp_min(1e-38).log()).sum(-1)
    np.testing.assert_allclose(learned.entropy(), entropy, atol=1e-5)


def test_a_choice_between_two_of_three_by_hand() -> None:
    logits = torch.tensor([math.log(1), math.log(3), 50.0])
    found = distributions.Categorical(logits, torch.tensor([1, 1, 0]))
    chances = found.log_probs.exp()
    assert chances.tolist() == pytest.approx([0.25, 0.75, 0.0])
    assert chances[2] == 0.0
    assert float(found.entropy()) == pytest.approx(-(0.25 * math.log(0.25) + 0.75 * math.log(0.75)))


def test_gradients_stay_finite_when_all_actions_but_one_are_masked() -> None:
    logits = torch.randn(4, 3, requires_grad=True)
    masks = torch.tensor([1, 0, 0], dtype=torch.uint8).expand(4, 3)
    found = distributions.Categorical(logits, masks)
    (found.log_prob(torch.zeros(4, dtype=torch.int64)).sum() + found.entropy().sum()).backward()
    assert logits.grad is not None
    assert logits.grad.abs().max() == 0.0


def test_samples_come_as_often_as_they_should() -> None:
    chances = np.array([0.1, 0.0, 0.6, 0.3])
    logits = np.log(np.maximum(chances, 1e-30)).astype(np.float32)
    masks = np.tile((chances > 0).astype(np.uint8), (100_000, 1))
    action, _ = sampling.CategoricalSampler(4, 100_000).sample(
        np.tile(logits[:, None], 100_000), np.random.default_rng(0), masks=masks
    )
    shares = np.bincount(action, minlength=4) / 100_000
    assert shares[1] == 0.0
    np.testing.assert_allclose(shares, chances, atol=0.006)


@settings(max_examples=50, deadline=None)
@given(seeds, st.integers(1, 6))
def test_gaussians_are_alike_everywhere(seed: int, batch: int) -> None:
    rng = np.random.default_rng(seed)
    mean = rng.standard_normal((batch, 3), np.float32)
    log_std = rng.uniform(-1, 1, 3).astype(np.float32)
    scaling = ActionScaling.of(ARM)
    learned = distributions.Gaussian(torch.from_numpy(mean), torch.from_numpy(log_std), scale_of(scaling))
    inner = reference.Normal(torch.from_numpy(mean), torch.from_numpy(log_std).exp())
    action, logp = sampling.gaussian(mean.T, log_std, scaling, rng)
    units = torch.from_numpy((action - scaling.middle) / scaling.half)
    truth = inner.log_prob(units).sum(-1)
    np.testing.assert_allclose(logp, truth, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(learned.log_prob(torch.from_numpy(action)), truth, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(learned.entropy(), inner.entropy().sum(-1), rtol=1e-5)


def test_a_gaussian_by_hand_in_the_environments_units() -> None:
    # The range 0..10 is -1..1 for the policy: its mean 0.5 is 7.5 outside, and 10 is one deviation of 0.5 away.
    scaling = ActionScaling.of(Continuous((0.0,), (10.0,)))
    mean, log_std = np.array([[0.5]], np.float32), np.log(np.array([0.5], np.float32))
    greedy, _ = sampling.gaussian(mean, log_std, scaling, np.random.default_rng(0), greedy=True)
    assert greedy.tolist() == [[7.5]]
    found = distributions.Gaussian(torch.from_numpy(mean), torch.from_numpy(log_std), scale_of(scaling))
    expected = -0.5 - math.log(0.5) - 0.5 * math.log(2 * math.pi)
    assert float(found.log_prob(torch.tensor([[10.0]]))) == pytest.approx(expected, rel=1e-6)


@settings(max_examples=50, deadline=None)
@given(seeds, st.integers(1, 6))
def test_squashed_gaussians_are_alike_everywhere(seed: int, batch: int) -> None:
    rng = np.random.default_rng(seed)
    mean, log_std = rng.uniform(-1, 1, (2, batch, 3)).astype(np.float32)
    scaling = ActionScaling.of(ARM)
    learned = distributions.SquashedGaussian(
        torch.from_numpy(mean), torch.from_numpy(log_std), scale_of(scaling)
    )
    out = np.concatenate([mean, log_std], axis=1).T
    action, logp = sampling.squashed(out, scaling, np.random.default_rng(seed))
    assert (np.abs((action - scaling.middle) / scaling.half) <= 1).all()
    noise = np.random.default_rng(seed).standard_normal((3, batch), np.float32).T
    inner = torch.from_numpy(mean + np.exp(log_std) * noise)
    base = reference.Normal(torch.from_numpy(mean).double(), torch.from_numpy(log_std).double().exp())
    squash = reference.TanhTransform(cache_size=1)
    truth = (base.log_prob(inner.double()) - squash.log_abs_det_jacobian(inner.double(), None)).sum(-1)
    np.testing.assert_allclose(logp, truth, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(learned.log_prob(inner), truth, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(learned.sample(torch.from_numpy(noise)).logp, truth, rtol=1e-4, atol=1e-4)


def test_the_log_probability_of_a_squashed_sample_is_that_of_what_was_drawn() -> None:
    mean = torch.randn(64, 3, generator=torch.Generator().manual_seed(1))
    scaling = ActionScaling.of(Continuous((-1.0,) * 3, (1.0,) * 3))
    found = distributions.SquashedGaussian(mean, torch.full_like(mean, -1.0), scale_of(scaling))
    drawn = found.sample(torch.randn(64, 3, generator=torch.Generator().manual_seed(2)))
    np.testing.assert_allclose(drawn.logp, found.log_prob(torch.atanh(drawn.action)), rtol=1e-3, atol=1e-3)


def test_a_squashed_samples_way_back_is_that_of_autograd() -> None:
    chance = torch.Generator().manual_seed(1)
    noise, over_inside = torch.randn(2, 64, 3, generator=chance).unbind()
    out = (
        3 * torch.randn(64, 6, generator=chance)
    ).requires_grad_()  # some deviations are held at their limit
    mean, log_std = out.chunk(2, dim=-1)
    clamped = log_std.clamp(MIN_LOG_STD, MAX_LOG_STD)
    assert not torch.equal(clamped, log_std)
    scale = scale_of(ActionScaling.of(ARM))
    found = distributions.SquashedGaussian(mean, clamped, scale)
    drawn = found.sample(noise)
    torch.testing.assert_close(drawn.action, scale.to_environment(drawn.inside))
    over_logp = torch.tensor([0.3])
    (wanted,) = torch.autograd.grad((drawn.inside * over_inside).sum() + (drawn.logp * over_logp).sum(), out)
    torch.testing.assert_close(found.backward(drawn, over_inside, over_logp), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("x", [-40.0, -10.0, 0.0, 10.0, 40.0])
def test_far_outside_the_tangents_slope_keeps_its_logarithm(x: float) -> None:
    # 1 - tanh(x)^2 = 4 / (e^x + e^-x)^2, which is 0 in single precision from x = 9 on.
    expected = math.log(4) - 2 * (abs(x) + math.log1p(math.exp(-2 * abs(x))))
    assert float(sampling.log_tanh_derivative(np.array(x, np.float32))) == pytest.approx(expected, rel=1e-6)
    there = torch.tensor(x, requires_grad=True)
    found = distributions.log_tanh_derivative(there)
    found.backward()
    assert float(found.detach()) == pytest.approx(expected, rel=1e-6)
    assert there.grad is not None
    assert float(there.grad) == pytest.approx(-2 * math.tanh(x), abs=1e-5)


def test_without_limits_units_are_the_environments() -> None:
    scaling = ActionScaling.of(ARM)
    assert scaling.middle.tolist() == [0.0, 5.0, 0.0]
    assert scaling.half.tolist() == [2.0, 5.0, 1.0]
    assert not scaling.trivial
    assert ActionScaling.of(Continuous((-1.0,), (1.0,))).trivial
