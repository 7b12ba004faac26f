"""What learners build on: the flat optimizer is PyTorch's Adam, and running statistics are those of all rows."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from callsheet.rl.nets.network import Network
from callsheet.rl.nets.normalize import CLIP, Moments, Normalizer
from callsheet.rl.nets.numpy_policy import NumpyPolicy
from callsheet.rl.nets.torch import Adam, ManualMLP, TorchNet, tensors
from callsheet.rl.nets.torch.numpy_mlp import mlp
from callsheet.rl.spaces import Array, Continuous, Discrete, Spaces

SPACES = Spaces({"observation": Array("float32", (4,))}, Discrete(2))


def make(seed: int = 0) -> TorchNet:
    return TorchNet(SPACES, Network(hidden=(16,)), generator=torch.Generator().manual_seed(seed))


def loss(net: TorchNet, seed: int) -> torch.Tensor:
    x = torch.randn(32, 4, generator=torch.Generator().manual_seed(seed))
    out = net.forward({"observation": x})
    assert out.value is not None
    return (out.policy - 1).square().sum() + (out.value - 2).square().sum()


@pytest.mark.parametrize("clip", [None, 0.5, 1e6])
def test_steps_are_those_of_pytorchs_adam(clip: float | None) -> None:
    net, peer = make(), make()
    ours = Adam(net.parameters.values, net.parameters.grads, lr=1e-2, eps=1e-5)
    leaves = [leaf.detach().clone().requires_grad_() for leaf in peer.parameters.named.values()]
    peer.parameters.named.update(zip(peer.parameters.named, leaves, strict=True))
    theirs = torch.optim.Adam(leaves, lr=1e-2, eps=1e-5)
    for step in range(5):
        net.parameters.zero()
        loss(net, step).backward()
        norm = ours.step(clip=clip)
        theirs.zero_grad()
        loss(peer, step).backward()
        if clip is not None:
            expected = torch.nn.utils.clip_grad_norm_(leaves, clip)
            torch.testing.assert_close(norm, expected)
        theirs.step()
    flat = torch.cat([leaf.detach().reshape(-1) for leaf in leaves])
    torch.testing.assert_close(net.parameters.values, flat, atol=1e-6, rtol=1e-5)


def test_an_optimizer_goes_on_where_its_state_was_saved() -> None:
    net, later = make(), make(1)
    one = Adam(net.parameters.values, net.parameters.grads, lr=1e-2)
    for step in range(3):
        net.parameters.zero()
        loss(net, step).backward()
        one.step()
    two = Adam(later.parameters.values, later.parameters.grads, lr=1e-2)
    later.parameters.load(net.parameters.snapshot())
    two.restore({name: array.copy() for name, array in one.state().items()})
    for each, adam in ((net, one), (later, two)):
        each.parameters.zero()
        loss(each, 9).backward()
        adam.step()
    assert torch.equal(net.parameters.values, later.parameters.values)


def layers(*sizes: int, seed: int = 0) -> list[torch.Tensor]:
    """Weights and biases in turn."""
    source = torch.Generator().manual_seed(seed)
    found = []
    for inside, outside in itertools.pairwise(sizes):
        found += [torch.randn(outside, inside, generator=source), torch.randn(outside, generator=source)]
    return [one.requires_grad_() for one in found]


def plain(x: torch.Tensor, hidden: list[torch.Tensor], heads: list[torch.Tensor]) -> torch.Tensor:
    for weight, bias in zip(hidden[::2], hidden[1::2], strict=True):
        x = torch.tanh(x @ weight.t() + bias)
    return torch.cat([x @ w.t() + b for w, b in zip(heads[::2], heads[1::2], strict=True)], -1)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=3),
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.lists(st.integers(1, 5), min_size=1, max_size=3),
    st.integers(0, 1000),
)
def test_the_quick_stack_of_layers_is_pytorchs_forward_and_backward(
    widths: list[int], heads: list[int], lead: list[int], seed: int
) -> None:
    hidden = layers(3, *widths, seed=seed)
    ends = [one for size in heads for one in layers(([3, *widths])[-1], size, seed=size)]
    x = torch.randn(*lead, 3, generator=torch.Generator().manual_seed(seed), requires_grad=True)
    leaves = [x, *hidden, *ends]
    found, expected = mlp(x, hidden, ends), plain(x, hidden, ends)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    toward = torch.randn(found.shape, generator=torch.Generator().manual_seed(seed))
    for ours, theirs in zip(
        torch.autograd.grad(found, leaves, toward),
        torch.autograd.grad(expected, leaves, toward),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


def test_passes_that_overlap_do_not_share_memory() -> None:
    hidden, heads = layers(3, 8), layers(8, 2)
    xs = [torch.randn(5, 3, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]
    outs = [mlp(x, hidden, heads) for x in xs]
    with torch.no_grad():
        mlp(xs[0] + 1, hidden, heads)
    for x, out in zip(xs, outs, strict=True):
        (ours,) = torch.autograd.grad(out.square().sum(), hidden[:1])
        (theirs,) = torch.autograd.grad(plain(x, hidden, heads).square().sum(), hidden[:1])
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


def test_a_pass_cannot_be_gone_through_backwards_twice() -> None:
    out = mlp(torch.ones(2, 3), layers(3, 8), layers(8, 2)).sum()
    out.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="already called"):
        out.backward()


def test_a_part_is_optimized_without_the_others() -> None:
    spaces = Spaces(SPACES.observations, Continuous((-1.0,), (1.0,)))
    net = TorchNet(
        spaces, Network(head="soft-actor-critic", hidden=(8,)), generator=torch.Generator().manual_seed(0)
    )
    before = net.parameters.snapshot()
    before = {name: array.copy() for name, array in before.items()}
    adam = Adam(*net.parameters.part("q"), lr=0.1)
    obs = tensors({"observation": np.ones((3, 4), np.float32)})
    for name in ("q.1", "q.2"):
        layers = ManualMLP(net.parameters, name, net.network)
        layers.forward(net.features(obs, torch.ones(3, 1)))
        layers.backward(torch.ones(3, 1), parameters=True, inputs=False)
    adam.step()
    for name, array in net.parameters.snapshot().items():
        assert np.array_equal(array, before[name]) == name.startswith("policy."), name


def test_gradients_land_in_the_flat_tensor_and_are_cleared_at_once() -> None:
    net = make()
    loss(net, 0).backward()
    first = net.parameters.grads.clone()
    assert first.abs().sum() > 0
    loss(net, 0).backward()
    torch.testing.assert_close(net.parameters.grads, 2 * first)
    net.parameters.zero()
    assert not net.parameters.grads.any()
    assert not any(leaf.grad.any() for leaf in net.parameters.named.values() if leaf.grad is not None)


def test_batch_by_batch_statistics_are_those_of_all_rows() -> None:
    rng = np.random.default_rng(0)
    rows = (1000 + 3 * rng.standard_normal((1000, 2, 3))).astype(np.float32)
    moments = Moments((2, 3))
    for some in np.split(rows, [1, 10, 10, 700]):
        moments.add(some)
    np.testing.assert_allclose(moments.mean, rows.mean(0, dtype=np.float64), rtol=1e-12)
    np.testing.assert_allclose(moments.var, rows.var(0, dtype=np.float64), rtol=1e-9)
    assert moments.count == 1000


def test_statistics_travel_in_the_snapshot_under_their_names() -> None:
    spaces = Spaces({"arm": Array("float32", (2,)), "camera": Array("uint8", (3, 40, 40))}, Discrete(2))
    rng = np.random.default_rng(0)
    obs = {"arm": rng.standard_normal((5, 4, 2), np.float32), "camera": np.zeros((5, 4, 3, 40, 40), np.uint8)}
    valid = np.ones((5, 4), np.uint8)
    valid[0] = 0
    obs["arm"][0] = 1e9
    normalizer = Normalizer(spaces)
    normalizer.update(obs, valid)
    snapshot = normalizer.snapshot()
    assert sorted(snapshot) == ["norm.arm.count", "norm.arm.mean", "norm.arm.var"]
    np.testing.assert_allclose(snapshot["norm.arm.mean"], obs["arm"][1:].reshape(-1, 2).mean(0), rtol=1e-5)
    assert snapshot["norm.arm.count"] == 16
    again = Normalizer(spaces)
    again.load(snapshot)
    again.update(obs, valid)
    normalizer.update(obs, valid)
    for name, array in normalizer.snapshot().items():
        np.testing.assert_array_equal(again.snapshot()[name], array)


def test_a_policy_sees_normalized_observations_clipped() -> None:
    net = make()
    plain, normal = NumpyPolicy(SPACES, net.network), NumpyPolicy(SPACES, net.network)
    snapshot = net.parameters.snapshot()
    plain.load(snapshot)
    statistics = {
        "norm.observation.mean": np.array([1.0, 2.0, 3.0, 4.0]),
        "norm.observation.var": np.array([4.0, 4.0, 4.0, 0.0]),
        "norm.observation.count": np.array(10.0),
    }
    normal.load({**snapshot, **statistics})
    raw = np.array([[3.0, 2.0, -1e9, 5.0]], np.float32)
    seen = np.array([[1.0, 0.0, -CLIP, CLIP]], np.float32)
    rng = np.random.default_rng
    expected = plain.act({"observation": seen}, rng(0)).value
    np.testing.assert_allclose(normal.act({"observation": raw}, rng(0)).value, expected, rtol=1e-5)
    net.set_normalization(statistics)
    with torch.no_grad():
        np.testing.assert_allclose(net.forward(tensors({"observation": raw})).value, expected, rtol=1e-5)
    normal.load(snapshot)
    np.testing.assert_allclose(normal.act({"observation": seen}, rng(0)).value, expected, rtol=1e-6)
