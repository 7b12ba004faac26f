"""Policies: what they are is data, and NumPy and PyTorch give the same answers from the same snapshot."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from callsheet.errors import UserError
from callsheet.rl.nets.network import Network, image, resolve
from callsheet.rl.nets.normalize import Normalizer
from callsheet.rl.nets.numpy_policy import NumpyPolicy
from callsheet.rl.nets.parameters import ParameterLayout, SnapshotMismatch
from callsheet.rl.nets.torch import SEQUENTIAL, ManualMLP, TorchNet, TorchPolicy, TwoThreads, tensors
from callsheet.rl.spaces import Array, Continuous, Discrete, Spaces

Arrays = dict[str, NDArray[Any]]

CARTPOLE = Spaces({"observation": Array("float32", (4,))}, Discrete(2))
PONG = Spaces({"observation": Array("uint8", (4, 84, 84), 0, 255)}, Discrete(6))
REACHER = Spaces({"observation": Array("float32", (11,))}, Continuous((-1.0, -2.0), (1.0, 4.0)))
ROBOT = Spaces(
    {
        "camera": Array("uint8", (40, 48, 3), 0, 255),
        "arm.joints": Array("float32", (2, 3)),
        "buttons": Array("uint8", (5,), 0, 1),
    },
    Discrete(3),
)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def observe(spaces: Spaces, *lead: int, seed: int = 0) -> Arrays:
    rng = np.random.default_rng(seed)
    found: Arrays = {}
    for key, array in spaces.observations.items():
        shape = (*lead, *array.shape)
        if array.dtype == "uint8":
            found[key] = rng.integers(0, int(array.high or 255) + 1, shape, np.uint8)
        else:
            found[key] = rng.standard_normal(shape, np.float32)
    return found


def shaken(net: TorchNet, seed: int = 0) -> Arrays:
    """A snapshot whose policy is not the nearly uniform one it starts with."""
    rng = np.random.default_rng(seed)
    return {
        name: array + 0.1 * rng.standard_normal(array.shape, np.float32)
        for name, array in net.parameters.snapshot().items()
    }


@pytest.mark.parametrize(
    ("spaces", "network", "torso", "hidden", "shared"),
    [
        (CARTPOLE, Network(), "mlp", (64, 64), False),
        (PONG, Network(), "nature", (), True),
        (PONG, Network(torso="resnet"), "resnet", (), True),
        (PONG, Network(torso="mlp"), "mlp", (64, 64), False),
        (ROBOT, Network(), "nature", (256,), True),
        (CARTPOLE, Network(lstm=32), "mlp", (64, 64), True),
        (CARTPOLE, Network(head="q"), "mlp", (128, 128), None),
        (REACHER, Network(head="soft-actor-critic"), "mlp", (256, 256), None),
        (CARTPOLE, Network(hidden=(8,), shared=True), "mlp", (8,), True),
    ],
)
def test_what_is_left_open_follows_from_the_environment(
    spaces: Spaces, network: Network, torso: str, hidden: tuple[int, ...], shared: bool | None
) -> None:
    found = resolve(network, spaces)
    assert (found.torso, found.hidden, found.shared) == (torso, hidden, shared)
    assert "auto" not in msgspec.to_builtins(found).values()
    assert resolve(found, spaces) == found
    assert msgspec.json.decode(msgspec.json.encode(found), type=Network) == found


@pytest.mark.parametrize(
    ("spaces", "network", "words"),
    [
        (CARTPOLE, Network(torso="nature"), "no observation is one: observation is float32\\[4\\]"),
        (Spaces({"o": Array("uint8", (3, 20, 20))}, Discrete(2)), Network(torso="nature"), "36x36"),
        (REACHER, Network(head="q"), "discrete actions"),
        (CARTPOLE, Network(head="soft-actor-critic"), "continuous"),
        (REACHER, Network(head="soft-actor-critic", lstm=8), "does not support an LSTM"),
        (CARTPOLE, Network(lstm=8, shared=False), "always share an LSTM"),
        (CARTPOLE, Network(head="q", shared=True), "does not apply"),
        (CARTPOLE, Network(dueling=True), "dueling"),
        (CARTPOLE, Network(hidden=(64, 0)), "hidden=\\(64, 0\\)"),
    ],
)
def test_a_network_that_cannot_be_is_refused(spaces: Spaces, network: Network, words: str) -> None:
    with pytest.raises(UserError, match=words) as refused:
        resolve(network, spaces)
    assert refused.value.fix


@pytest.mark.parametrize(
    ("shape", "channels", "last"),
    [((4, 84, 84), 4, False), ((84, 84, 3), 3, True), ((84, 84), 1, False), ((64, 96, 96), None, False)],
)
def test_channels_are_the_short_axis(shape: tuple[int, ...], channels: int | None, last: bool) -> None:
    found = image("camera", Array("uint8", shape))
    assert (found and found.channels) == channels
    assert (found.last if found else False) == last


spaces_of_vectors = st.builds(
    lambda sizes, actions: Spaces(
        {f"part.{index}": Array("float32", shape) for index, shape in enumerate(sizes)}, actions
    ),
    st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=2).map(tuple), min_size=1, max_size=3),
    st.one_of(
        st.builds(Discrete, st.integers(1, 7)),
        st.integers(1, 4).map(lambda n: Continuous((-1.0,) * n, tuple(float(i + 1) for i in range(n)))),
    ),
)


@settings(max_examples=80, deadline=None)
@given(
    spaces_of_vectors,
    st.builds(
        Network,
        hidden=st.lists(st.integers(1, 40), max_size=3).map(tuple),
        activation=st.sampled_from(["tanh", "relu"]),
        shared=st.booleans(),
        log_std=st.floats(-1.0, 0.5),
    ),
    st.integers(1, 9),
    st.booleans(),
    st.integers(0, 1000),
)
def test_an_actor_in_numpy_and_a_learner_in_pytorch_agree(
    spaces: Spaces, network: Network, batch: int, masked: bool, seed: int
) -> None:
    net = TorchNet(spaces, network, generator=generator(seed))
    snapshot = shaken(net, seed)
    normalizer = Normalizer(spaces)
    normalizer.update(observe(spaces, 5, 4, seed=seed + 1), np.ones((5, 4)))
    snapshot |= normalizer.snapshot()
    net.parameters.load(snapshot)
    net.set_normalization(snapshot)
    policy = NumpyPolicy(spaces, network)
    policy.load(snapshot)
    obs = observe(spaces, batch, seed=seed)
    masks = None
    if masked and isinstance(spaces.action, Discrete):
        masks = np.random.default_rng(seed).integers(0, 2, (batch, spaces.action.n)).astype(np.uint8)
        masks[np.arange(batch), seed % spaces.action.n] = 1
    found = policy.act(obs, np.random.default_rng(seed), masks=masks)
    with torch.no_grad():
        out = net.forward(tensors(obs))
        logp = net.distribution(out.policy, None if masks is None else torch.from_numpy(masks)).log_prob(
            torch.from_numpy(found.action)
        )
    assert found.logp is not None
    assert found.value is not None
    assert out.value is not None
    np.testing.assert_allclose(found.logp, logp, atol=1e-5, rtol=1e-5)
    np.testing.assert_allclose(found.value, out.value, atol=1e-5, rtol=1e-5)
    if masks is not None:
        assert np.take_along_axis(masks, found.action[:, None], axis=1).all()
    other = TorchPolicy(spaces, network)
    other.load(snapshot)
    same = other.act(obs, np.random.default_rng(seed), masks=masks)
    np.testing.assert_allclose(same.action, found.action, atol=1e-4)
    np.testing.assert_allclose(same.logp, found.logp, atol=1e-5, rtol=1e-5)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 9), st.integers(0, 1000))
def test_a_soft_actors_squashed_actions_and_log_probabilities_agree(batch: int, seed: int) -> None:
    network = Network(head="soft-actor-critic", hidden=(32, 32))
    net = TorchNet(REACHER, network, generator=generator(seed))
    net.parameters.load(shaken(net, seed))
    policy = NumpyPolicy(REACHER, network)
    policy.load(net.parameters.snapshot("policy"))
    obs = observe(REACHER, batch, seed=seed)
    found = policy.act(obs, np.random.default_rng(seed))
    with torch.no_grad():
        expected = net.squashed(net.forward(tensors(obs)).policy)
    noise = np.random.default_rng(seed).standard_normal((2, batch), np.float32).T
    inner = expected.mean + expected.log_std.exp() * torch.from_numpy(noise)
    np.testing.assert_allclose(found.logp, expected.log_prob(inner), atol=1e-5, rtol=1e-5)
    np.testing.assert_allclose(
        found.action, expected.scale.to_environment(inner.tanh()), atol=1e-5, rtol=1e-5
    )
    assert (found.action >= (-1.0, -2.0)).all()
    assert (found.action <= (1.0, 4.0)).all()
    calm = policy.act(obs, np.random.default_rng(seed), greedy=True)
    np.testing.assert_allclose(
        calm.action, expected.scale.to_environment(torch.tanh(expected.mean)), atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("dueling", [False, True])
def test_values_of_actions_agree_and_some_actions_are_random(dueling: bool) -> None:
    network = Network(head="q", dueling=dueling, embed=16)
    flat = msgspec.structs.replace(network, torso="mlp")
    for shape, policy in ((network, TorchPolicy(ROBOT, network)), (flat, NumpyPolicy(ROBOT, flat))):
        net = TorchNet(ROBOT, shape, generator=generator())
        net.parameters.load(shaken(net))
        policy.load(net.parameters.snapshot())
        obs = observe(ROBOT, 6)
        with torch.no_grad():
            expected = net.forward(tensors(obs)).policy.numpy()
        np.testing.assert_allclose(policy.q(obs), expected, atol=1e-4, rtol=1e-4)
        rng = np.random.default_rng(0)
        found = policy.act(obs, rng)
        np.testing.assert_array_equal(found.action, expected.argmax(1))
        np.testing.assert_allclose(found.value, expected.max(1), atol=1e-4, rtol=1e-4)
        assert found.logp is None
        share = np.where(np.arange(6) < 3, 0.0, 1.0).astype(np.float32)
        drawn = np.stack([policy.act(obs, rng, epsilon=share).action for _ in range(20)])
        assert (drawn[:, :3] == found.action[:3]).all()
        assert {*drawn[:, 3:].ravel().tolist()} == {0, 1, 2}
        masks = np.tile(np.array([0, 1, 1], np.uint8), (6, 1))
        drawn = np.stack([policy.act(obs, rng, epsilon=0.5, masks=masks).action for _ in range(15)])
        assert {*drawn.ravel().tolist()} == {1, 2}
        assert (policy.act(obs, rng, epsilon=1.0, greedy=True).action == found.action).all()


@pytest.mark.parametrize(
    "network",
    [
        Network(embed=16),
        Network(torso="resnet", embed=16),
        Network(embed=16, lstm=16),
        Network(head="q", embed=16),
    ],
)
@pytest.mark.parametrize("spaces", [PONG, ROBOT], ids=["image", "image and vectors"])
def test_images_are_seen(spaces: Spaces, network: Network) -> None:
    net = TorchNet(spaces, network, generator=generator())
    obs = observe(spaces, 2, 3)
    out = net.forward(tensors(obs), torch.zeros(2, 3), torch.zeros(3, net.state_size))
    assert out.policy.shape == (2, 3, spaces.action.n if isinstance(spaces.action, Discrete) else 0)
    out.policy.square().sum().backward()
    torso = [name for name in net.parameters.named if ".nature." in name or ".resnet." in name]
    assert all(net.parameters[name].grad.abs().sum() > 0 for name in torso)  # type: ignore[union-attr]
    other = {name: 255 - array if array.ndim > 3 else array for name, array in obs.items()}
    changed = net.forward(tensors(other), torch.zeros(2, 3), torch.zeros(3, net.state_size))
    assert (changed.policy - out.policy).abs().max() > 0


def test_the_nature_torso_is_the_one_of_the_paper() -> None:
    net = TorchNet(PONG, Network(), generator=generator())
    named = net.parameters.named
    convolutions = [
        torch.nn.Conv2d(4, 32, 8, 4),
        torch.nn.Conv2d(32, 64, 4, 2),
        torch.nn.Conv2d(64, 64, 3, 1),
    ]
    dense = torch.nn.Linear(64 * 7 * 7, 512)
    for layer, name in zip([*convolutions, dense], ("0", "1", "2", "embed"), strict=True):
        layer.weight.data = named[f"torso.nature.observation.{name}.weight"].data
        layer.bias.data = named[f"torso.nature.observation.{name}.bias"].data
    x = torch.from_numpy(observe(PONG, 3)["observation"])
    h = x.float() / 255
    for layer in convolutions:
        h = layer(h).relu()
    h = dense(h.flatten(1)).relu()
    expected = h @ named["policy.head.weight"].t() + named["policy.head.bias"]
    with torch.no_grad():
        found = net.forward({"observation": x}).policy
    np.testing.assert_allclose(found, expected.detach(), atol=1e-5, rtol=1e-4)


def test_channels_last_and_first_see_the_same() -> None:
    last = Spaces({"observation": Array("uint8", (40, 48, 3))}, Discrete(2))
    first = Spaces({"observation": Array("uint8", (3, 40, 48))}, Discrete(2))
    frames = observe(last, 2)["observation"]
    with torch.no_grad():
        one = TorchNet(last, Network(), generator=generator()).forward(tensors({"observation": frames}))
        moved = np.moveaxis(frames, -1, 1).copy()
        two = TorchNet(first, Network(), generator=generator()).forward(tensors({"observation": moved}))
    np.testing.assert_allclose(one.policy, two.policy, atol=1e-6)


def test_the_lstm_is_pytorchs_own_within_an_episode() -> None:
    net = TorchNet(CARTPOLE, Network(lstm=8, hidden=()), generator=generator())
    peer = torch.nn.LSTM(4, 8)
    named = net.parameters.named
    peer.weight_ih_l0.data = named["torso.lstm.input"].data
    peer.weight_hh_l0.data = named["torso.lstm.hidden"].data
    peer.bias_ih_l0.data = named["torso.lstm.bias"].data
    peer.bias_hh_l0.data.zero_()
    x = torch.randn(6, 3, 4, generator=generator())
    state = torch.randn(3, 16, generator=generator(1))
    with torch.no_grad():
        expected, (hidden, cell) = peer(x, (state[None, :, :8].contiguous(), state[None, :, 8:].contiguous()))
        out = net.forward({"observation": x}, torch.zeros(6, 3), state)
        head = torch.nn.functional.linear(expected, named["policy.head.weight"], named["policy.head.bias"])
    assert out.state is not None
    np.testing.assert_allclose(out.policy, head, atol=1e-6)
    np.testing.assert_allclose(out.state, torch.cat((hidden[0], cell[0]), -1), atol=1e-6)


def test_a_recurrent_policy_forgets_where_an_episode_begins() -> None:
    net = TorchNet(CARTPOLE, Network(lstm=8), generator=generator())
    net.parameters.load(shaken(net))
    x = torch.randn(6, 2, 4, generator=generator())
    first = torch.zeros(6, 2)
    first[3, 0] = 1
    start = torch.randn(2, 16, generator=generator(1))
    with torch.no_grad():
        whole = net.forward({"observation": x}, first, start)
        later = net.forward({"observation": x[3:]}, torch.zeros(3, 2), torch.zeros(2, 16))
    np.testing.assert_allclose(whole.policy[3:, 0], later.policy[:, 0], atol=1e-6)
    assert (whole.policy[3:, 1] - later.policy[:, 1]).abs().max() > 1e-4


def test_a_recurrent_actor_step_by_step_is_the_learner_unrolled() -> None:
    network = Network(lstm=8)
    net = TorchNet(CARTPOLE, network, generator=generator())
    net.parameters.load(shaken(net))
    policy = TorchPolicy(CARTPOLE, network)
    policy.load(net.parameters.snapshot())
    obs = observe(CARTPOLE, 6, 3)["observation"]
    first = np.random.default_rng(1).random((6, 3)) < 0.3
    state = np.zeros((3, policy.state_size), np.float32)
    rng = np.random.default_rng(0)
    steps = []
    for t in range(6):
        steps.append(policy.act({"observation": obs[t]}, rng, state=state, first=first[t]))
        state = steps[-1].state
    with torch.no_grad():
        out = net.forward(tensors({"observation": obs}), torch.from_numpy(first), torch.zeros(3, 16))
        logp = net.distribution(out.policy).log_prob(torch.from_numpy(np.stack([s.action for s in steps])))
    np.testing.assert_allclose(np.stack([s.logp for s in steps]), logp, atol=1e-5)
    np.testing.assert_allclose(np.stack([s.value for s in steps]), out.value, atol=1e-5)
    np.testing.assert_allclose(state, out.state, atol=1e-5)


def test_critics_see_observations_and_an_action_scaled_to_one() -> None:
    spaces = Spaces({"a": Array("float32", (3,)), "b": Array("float32", (2,))}, Continuous((0.0,), (10.0,)))
    net = TorchNet(spaces, Network(head="soft-actor-critic", hidden=(16, 16)), generator=generator())
    obs = tensors(observe(spaces, 7))
    action = torch.rand(7, 1, generator=generator()) * 10
    torch.testing.assert_close(net.features(obs, action), torch.cat((obs["a"], obs["b"], action / 5 - 1), -1))


def test_sac_sees_images_together_with_its_action() -> None:
    spaces = Spaces(PONG.observations, Continuous((-1.0,), (1.0,)))
    net = TorchNet(spaces, Network(head="soft-actor-critic", hidden=(32,), embed=16), generator=generator())
    obs = tensors(observe(spaces, 4))
    drawn = net.squashed(net.forward(obs).policy).sample(torch.randn(4, 1, generator=generator()))
    seen = net.features(obs, drawn.action)
    assert seen.shape == (4, 16 + 1)
    (drawn.logp.mean() - seen.sum()).backward()
    for part in ("policy", "q"):
        assert net.parameters.part(part)[1].abs().sum() > 0


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("hidden", [(), (16,), (16, 8)])
def test_layers_go_forward_and_back_as_autograd_would(activation: str, hidden: tuple[int, ...]) -> None:
    network = Network(head="soft-actor-critic", hidden=hidden, activation=activation)  # type: ignore[arg-type]
    net = TorchNet(REACHER, network, generator=generator())
    layers = ManualMLP(net.parameters, "q.2", net.network)
    names = [name for name in net.parameters.named if name.startswith("q.2.")]
    act = torch.relu if activation == "relu" else torch.tanh
    width = net.parameters[names[0]].shape[1]
    two = TwoThreads(2)
    for batch in (5, 5, 3):
        x = torch.randn(batch, width, generator=generator(batch), requires_grad=True)
        slope = torch.randn(batch, 1, generator=generator(batch + 1))
        own = [net.parameters[name].detach().clone().requires_grad_() for name in names]
        y = x
        for index in range(0, len(own), 2):
            y = y @ own[index].t() + own[index + 1]
            y = act(y) if index < len(own) - 2 else y
        wanted = torch.autograd.grad(y, [x, *own], slope)
        torch.testing.assert_close(layers.forward(x), y.detach())
        net.parameters.zero()
        torch.testing.assert_close(layers.backward(slope, parameters=False, inputs=True), wanted[0])
        assert not net.parameters.grads.any(), "they were not asked for"
        for pair in (SEQUENTIAL, two):
            for inputs in (True, False):
                net.parameters.zero()
                back = layers.backward(slope, parameters=True, inputs=inputs, threads=pair)
                for name, grad in zip(names, wanted[1:], strict=True):
                    torch.testing.assert_close(net.parameters[name].grad, grad)
                if inputs:
                    torch.testing.assert_close(back, wanted[0])
                else:
                    assert back is None


def test_a_seed_starts_the_same_network_however_many_cores_there_are() -> None:
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            net = TorchNet(REACHER, Network(head="soft-actor-critic"), generator=generator())
            assert torch.get_num_threads() == threads
            found.append(net.parameters.values)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*found)


def test_the_same_seed_starts_the_same_network() -> None:
    network = Network(embed=64)
    one, two, other = (TorchNet(PONG, network, generator=generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(one.parameters.values, two.parameters.values)
    assert not torch.equal(one.parameters.values, other.parameters.values)
    weight = one.parameters["torso.nature.observation.embed.weight"].detach()
    np.testing.assert_allclose(weight @ weight.t(), 2 * np.eye(64), atol=1e-4)


def test_a_snapshot_goes_both_ways_and_another_policys_is_refused() -> None:
    net = TorchNet(CARTPOLE, Network(), generator=generator())
    snapshot = net.parameters.snapshot()
    layout = ParameterLayout(net.network, CARTPOLE)
    assert {name: array.shape for name, array in snapshot.items()} == {
        one.name: one.shape for one in layout.parameters
    }
    # Views: nothing is copied until somebody publishes them.
    assert all(np.shares_memory(array, net.parameters.values.numpy()) for array in snapshot.values())
    other = TorchNet(CARTPOLE, Network(), generator=generator(9))
    other.parameters.load(snapshot)
    assert torch.equal(other.parameters.values, net.parameters.values)
    wide = TorchNet(CARTPOLE, Network(hidden=(32, 64)), generator=generator()).parameters.snapshot()
    for taker in (NumpyPolicy(CARTPOLE, Network()), other.parameters):
        with pytest.raises(SnapshotMismatch, match=r"policy.mlp.0.weight is \[32, 4\], not \[64, 4\]"):
            taker.load(wide)
        with pytest.raises(SnapshotMismatch, match=r"policy.head.bias is missing"):
            taker.load({name: array for name, array in snapshot.items() if name != "policy.head.bias"})
    assert torch.equal(other.parameters.values, net.parameters.values)


def test_an_actor_that_needs_no_values_gets_none() -> None:
    net = TorchNet(CARTPOLE, Network(), generator=generator())
    obs = observe(CARTPOLE, 4)
    for policy in (NumpyPolicy(CARTPOLE, Network()), TorchPolicy(CARTPOLE, Network())):
        policy.load(net.parameters.snapshot())
        assert policy.act(obs, np.random.default_rng(0)).value is not None
        assert policy.act(obs, np.random.default_rng(0), values=False).value is None
        policy.load(net.parameters.snapshot("policy"))
        assert policy.act(obs, np.random.default_rng(0)).value is None


def test_answers_are_the_callers_to_keep() -> None:
    policy = NumpyPolicy(CARTPOLE, Network())
    policy.load(TorchNet(CARTPOLE, Network(), generator=generator()).parameters.snapshot())
    rng = np.random.default_rng(0)
    found = policy.act(observe(CARTPOLE, 4), rng)
    kept = [array.copy() for array in found[:3] if array is not None]
    policy.act(observe(CARTPOLE, 4, seed=1), rng)
    for now, then in zip(found[:3], kept, strict=True):
        np.testing.assert_array_equal(now, then)


def test_the_policy_draws_as_often_as_it_says() -> None:
    spaces = Spaces({"observation": Array("float32", (1,))}, Discrete(4))
    policy = NumpyPolicy(spaces, Network(hidden=()))
    chances = np.array([0.1, 0.2, 0.0, 0.7])
    net = TorchNet(spaces, Network(hidden=()), generator=generator())
    snapshot = net.parameters.snapshot()
    snapshot["policy.head.weight"][:] = 0
    snapshot["policy.head.bias"][:] = np.log(np.maximum(chances, 1e-30))
    policy.load(snapshot)
    masks = np.tile((chances > 0).astype(np.uint8), (50_000, 1))
    obs = {"observation": np.zeros((50_000, 1), np.float32)}
    found = policy.act(obs, np.random.default_rng(0), masks=masks)
    np.testing.assert_allclose(np.bincount(found.action, minlength=4) / 50_000, chances, atol=0.01)
    np.testing.assert_allclose(np.exp(found.logp), chances[found.action], atol=1e-6)
    assert (policy.act(obs, np.random.default_rng(0), greedy=True).action == 3).all()


def test_images_in_an_actor_without_pytorch_are_refused_with_the_way_out() -> None:
    with pytest.raises(UserError, match="need PyTorch") as refused:
        NumpyPolicy(PONG, Network())
    assert "callsheet[torch]" in refused.value.fix


def test_an_actor_with_a_small_policy_loads_no_pytorch() -> None:
    program = """
import sys
from callsheet.rl import returns
from callsheet.rl.nets.numpy_policy import NumpyPolicy
from callsheet.rl.nets.network import Network
from callsheet.rl.spaces import Array, Discrete, Spaces
NumpyPolicy(Spaces({"observation": Array("float32", (4,))}, Discrete(2)), Network())
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
