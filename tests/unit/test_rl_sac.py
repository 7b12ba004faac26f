"""SAC: losses are those worked out by hand, each moves what it should, and a checkpoint holds all of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from callsheet.errors import UserError
from callsheet.rl.algorithms.sac.config import Config
from callsheet.rl.algorithms.sac.learner import (
    SAC,
    Critics,
    critic_gradient,
    critic_loss,
    policy_loss,
    soft_targets,
    temperature_loss,
)
from callsheet.rl.nets.network import Network
from callsheet.rl.nets.numpy_policy import NumpyPolicy
from callsheet.rl.nets.torch import SEQUENTIAL, TorchNet, TwoThreads
from callsheet.rl.nets.torch.distributions import SquashedSample
from callsheet.rl.spaces import Array, Continuous, Discrete, Spaces

SPACES = Spaces({"observation": Array("float32", (3,))}, Continuous((-2.0, 0.0), (2.0, 1.0)))
NETWORK = Network(head="soft-actor-critic", hidden=(8,))


def batch(count: int = 16, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "obs.observation": rng.standard_normal((count, 3), np.float32),
        "next.observation": rng.standard_normal((count, 3), np.float32),
        "action": rng.uniform([-2, 0], [2, 1], (count, 2)).astype(np.float32),
        "reward": rng.standard_normal(count, np.float32),
        "discount": np.full(count, 0.9, np.float32),
    }


def make(**more: float) -> SAC:
    return SAC(SPACES, Config(network=NETWORK, **more), seed=1)  # type: ignore[arg-type]


def parts(learner: SAC) -> dict[str, np.ndarray]:
    return {name: array.copy() for name, array in learner.state().items()}


def test_targets_believe_the_critic_that_hopes_for_less_and_reward_randomness() -> None:
    found = soft_targets(
        torch.tensor([1.0, 1.0]),
        torch.tensor([0.5, 0.0]),
        torch.tensor([[4.0, 4.0], [6.0, 2.0]]),
        torch.tensor([-2.0, -2.0]),
        0.25,
    )
    assert found.tolist() == [3.25, 1.0], "1 + 0.5 x (4 + 0.25 x 2); and nothing follows a discount of 0"


def test_both_critics_share_one_loss() -> None:
    values, target = torch.tensor([[1.0, 2.0], [3.0, 0.0]], requires_grad=True), torch.tensor([0.0, 2.0])
    loss = critic_loss(values, target)
    # Half of the mean of (1, 0), and half of the mean of (9, 4).
    assert loss.item() == 0.5 * 0.5 + 0.5 * 6.5
    assert torch.equal(critic_gradient(values.detach(), target), torch.autograd.grad(loss, values)[0])


def test_the_policy_wants_value_and_randomness() -> None:
    found = policy_loss(torch.tensor([[4.0, 1.0], [3.0, 2.0]]), torch.tensor([-1.0, 1.0]), 0.5)
    assert found.item() == pytest.approx(((-0.5 - 3.0) + (0.5 - 1.0)) / 2)


def test_the_temperature_grows_while_the_policy_is_less_random_than_wanted() -> None:
    log = torch.tensor(0.3, requires_grad=True)
    certain = temperature_loss(log, torch.tensor([4.0, 2.0]), -2.0)
    certain.backward()  # type: ignore[no-untyped-call]
    assert log.grad is not None
    assert log.grad.item() == -1.0, "the entropy is -3 and should be -2: down the slope is up"


def test_a_temperature_finds_its_way_from_both_sides() -> None:
    for wanted, grows in ((50.0, True), (-50.0, False)):
        learner = make(target_entropy=wanted)
        told = [learner.update(batch(seed=number)) for number in range(5)]
        assert (told[-1]["temperature"] > told[0]["temperature"]) == grows


def test_an_update_moves_policy_and_critics_and_the_targets_follow_slowly() -> None:
    learner = make(learning_rate=1e-2, tau=0.1)
    before = parts(learner)
    data = batch()
    learner.update(data)
    after = parts(learner)
    target = {name: after[name] for name in after if name.startswith("target/q.")}
    assert target
    for name, array in target.items():
        net = after[name.replace("target/", "net/")]
        np.testing.assert_allclose(array, 0.9 * before[name] + 0.1 * net, atol=1e-6)
    # Adam's first step moves every parameter that has a gradient by the learning rate, whatever its size.
    for name in ("net/q.1.head.bias", "net/q.2.head.bias", "net/policy.head.bias"):
        np.testing.assert_allclose(np.abs(after[name] - before[name]), 1e-2, rtol=1e-3)


def test_the_two_critics_are_two_networks_and_each_learns_its_own() -> None:
    net = make()._net
    critics = Critics(net)
    seen = torch.randn(5, 5)
    values = critics.values(seen)
    assert values.shape == (2, 5)
    assert (values[0] - values[1]).abs().max() > 1e-3
    net.parameters.zero()
    critics.learn(0, torch.ones(5), inputs=False)
    for name, parameter in net.parameters.named.items():
        assert parameter.grad is not None
        assert bool(parameter.grad.any()) == name.startswith("q.1."), name
    values, grads = net.parameters.part("q")
    assert grads[critics.parts[0]].any()
    assert not grads[critics.parts[1]].any()
    assert [part.stop - part.start for part in critics.parts] == [len(values) // 2] * 2


def as_written(net: TorchNet, which: int, x: Tensor) -> Tensor:
    """What one of the critics thinks, as a book has it."""
    name, of = f"q.{which + 1}", net.parameters
    hidden = torch.relu(x @ of[f"{name}.mlp.0.weight"].t() + of[f"{name}.mlp.0.bias"])
    return hidden @ of[f"{name}.head.weight"][0] + of[f"{name}.head.bias"]


def test_critics_tell_what_would_be_better_and_stay_as_they_are() -> None:
    net = make()._net
    critics = Critics(net)
    seen = torch.randn(5, 5, generator=torch.Generator().manual_seed(1))
    net.parameters.zero()
    for which in (0, 1):
        found, slope = critics.evaluate(which, seen)
        assert torch.equal(found, critics.values(seen)[which])
        x = seen.clone().requires_grad_()
        wanted = as_written(net, which, x)
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(slope, torch.autograd.grad(wanted.sum(), x)[0])
    assert not net.parameters.grads.any()


def test_an_update_is_what_autograd_makes_of_the_losses() -> None:
    """One whole update again, written as the paper has it: losses, `backward`, PyTorch's own Adam."""
    learner, again = (make(temperature=0.5, learning_rate=3e-4) for _ in range(2))
    net, target = again._net, again._target
    data = {name: torch.from_numpy(array) for name, array in batch().items()}
    now, later = torch.randn(2, 16, 2, generator=torch.Generator().manual_seed(1)).unbind()
    named = net.parameters.named

    def critics(of: TorchNet, obs: Tensor, action: Tensor) -> Tensor:
        x = of.features({"observation": obs}, action)
        return torch.stack([as_written(of, which, x) for which in (0, 1)])

    def play(obs: Tensor, noise: Tensor) -> SquashedSample:
        return net.squashed(net.forward({"observation": obs}).policy).sample(noise)

    q = [leaf for name, leaf in named.items() if name.startswith("q.")]
    policy = [leaf for name, leaf in named.items() if name.startswith("policy.")]
    with torch.no_grad():
        after = play(data["next.observation"], later)
        hoped = critics(target, data["next.observation"], after.action)
        wanted = soft_targets(data["reward"], data["discount"], hoped, after.logp, 0.5)
    loss = critic_loss(critics(net, data["obs.observation"], data["action"]), wanted)
    for leaf, grad in zip(q, torch.autograd.grad(loss, q), strict=True):
        leaf.grad = grad
    torch.optim.Adam(q, lr=3e-4).step()
    drawn = play(data["obs.observation"], now)
    mine = policy_loss(critics(net, data["obs.observation"], drawn.action), drawn.logp, 0.5)
    for leaf, grad in zip(policy, torch.autograd.grad(mine, policy), strict=True):
        leaf.grad = grad
    torch.optim.Adam(policy, lr=3e-4).step()

    told = learner.update(batch())
    assert told["loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert told["policy_loss"] == pytest.approx(mine.item(), rel=1e-5)
    for name, leaf in learner._net.parameters.named.items():
        torch.testing.assert_close(leaf, named[name], rtol=1e-4, atol=2e-6, msg=name)


def test_two_threads_give_what_one_gives() -> None:
    before = torch.get_num_threads()
    try:
        one, two = make(), make()
        one._threads, two._threads = SEQUENTIAL, TwoThreads(2)
        for number in range(4):
            assert one.update(batch(seed=number)) == two.update(batch(seed=number))
    finally:
        torch.set_num_threads(before)
    for (name, array), other in zip(parts(one).items(), parts(two).values(), strict=True):
        np.testing.assert_array_equal(array, other, err_msg=name)


def test_what_goes_wrong_in_either_of_two_threads_comes_out_when_both_are_over() -> None:
    done = []

    def fail() -> None:
        raise ValueError("no")

    for pair in (SEQUENTIAL, TwoThreads(2)):
        with pytest.raises(ValueError, match="no"):
            pair.run(lambda: done.append("here"), fail)
    with pytest.raises(ValueError, match="no"):
        TwoThreads(2).run(fail, lambda: done.append("there"))
    assert done == ["here", "here", "there"]


def test_pictures_are_learned_too() -> None:
    spaces = Spaces({"observation": Array("uint8", (84, 84, 4))}, SPACES.action)
    learner = SAC(spaces, Config(network=Network(head="soft-actor-critic", hidden=(8,), embed=8)), seed=1)
    rng = np.random.default_rng(0)
    data = batch(4)
    for name in ("obs.observation", "next.observation"):
        data[name] = rng.integers(0, 255, (4, 84, 84, 4), np.uint8)
    before = parts(learner)
    learner.update(data)
    after = parts(learner)
    for part in ("net/q.nature", "net/policy.nature", "target/q.nature"):
        names = [name for name in after if name.startswith(part)]
        assert names
        assert any((after[name] != before[name]).any() for name in names), part


def test_what_is_rewarded_becomes_the_policy() -> None:
    learner = make(learning_rate=1e-2, target_entropy=-6.0)
    policy = NumpyPolicy(SPACES, NETWORK)
    rng = np.random.default_rng(0)
    for number in range(400):
        data = batch(64, number)
        data["discount"][:] = 0
        data["reward"] = -np.abs(data["action"] - [1.0, 0.25]).sum(1).astype(np.float32)
        learner.update(data)
    policy.load(learner.snapshot())
    acted = policy.act({"observation": np.zeros((4, 3), np.float32)}, rng, greedy=True)
    np.testing.assert_allclose(acted.action, np.tile([1.0, 0.25], (4, 1)), atol=0.3)


def test_a_checkpoint_holds_all_that_the_next_update_depends_on() -> None:
    one, two = make(), make()
    for number in range(4):
        one.update(batch(seed=number))
    two.restore(parts(one))
    for number in range(4, 7):
        one.update(batch(seed=number))
        two.update(batch(seed=number))
    ours, theirs = one.state(), two.state()
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)


def test_choices_are_refused() -> None:
    with pytest.raises(UserError, match="SAC needs continuous actions"):
        SAC(Spaces(SPACES.observations, Discrete(3)), Config())
