"""SAC: losses are those worked out by hand, each moves what it should, and a checkpoint holds all of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from callsheet.errors import UserError
from callsheet.rl.nets.numpy import NumpyPolicy
from callsheet.rl.nets.shape import Network
from callsheet.rl.sac.config import Config
from callsheet.rl.sac.learner import SAC
from callsheet.rl.sac.losses import critic_loss, policy_loss, targets, temperature_loss
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
    found = targets(
        torch.tensor([1.0, 1.0]),
        torch.tensor([0.5, 0.0]),
        torch.tensor([[4.0, 4.0], [6.0, 2.0]]),
        torch.tensor([-2.0, -2.0]),
        0.25,
    )
    assert found.tolist() == [3.25, 1.0], "1 + 0.5 x (4 + 0.25 x 2); and nothing follows a discount of 0"


def test_both_critics_share_one_loss() -> None:
    values = torch.tensor([[1.0, 2.0], [3.0, 0.0]])
    # Half of the mean of (1, 0), and half of the mean of (9, 4).
    assert critic_loss(values, torch.tensor([0.0, 2.0])).item() == 0.5 * 0.5 + 0.5 * 6.5


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


def test_the_policys_loss_leaves_the_critics_alone() -> None:
    learner = make()
    net, judge = learner._net, learner._judge
    obs = {"observation": torch.randn(5, 3)}
    action, _ = net.squashed(obs).sample()
    net.parameters.zero()
    judge.critics(obs, action).sum().backward()  # type: ignore[no-untyped-call]
    assert net.parameters.part("policy")[1].abs().sum() > 0
    assert not net.parameters.part("q")[1].any()
    with torch.no_grad():
        net.parameters.values.add_(1.0)
    assert torch.equal(judge.critics(obs, action), net.critics(obs, action)), "one memory"


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
