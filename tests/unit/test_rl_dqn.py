"""DQN: targets and losses are those worked out by hand, and its learner goes on from a checkpoint as if nothing were."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from callsheet.errors import UserError
from callsheet.rl.algorithms import algorithm
from callsheet.rl.algorithms.dqn.config import Config
from callsheet.rl.algorithms.dqn.learner import DQN, double_q_targets, huber_loss, td_errors
from callsheet.rl.nets.network import Network
from callsheet.rl.settings import Training
from callsheet.rl.spaces import Array, Discrete, Spaces
from callsheet.runtime.replay.client.sampler import Sample

SPACES = Spaces({"observation": Array("float32", (3,))}, Discrete(2))


def batch(count: int = 8, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "obs.observation": rng.standard_normal((count, 3), np.float32),
        "next.observation": rng.standard_normal((count, 3), np.float32),
        "action": rng.integers(2, size=count),
        "reward": rng.standard_normal(count, np.float32),
        "discount": np.full(count, 0.9, np.float32),
        "weight": np.ones(count, np.float32),
    }


def make(**more: float) -> DQN:
    network = Network(head="q", hidden=(8,), dueling=True)
    return DQN(SPACES, Config(network=network, **more), seed=1)  # type: ignore[arg-type]


def test_the_online_network_chooses_and_the_target_network_judges() -> None:
    found = double_q_targets(
        torch.tensor([1.0, 1.0]),
        torch.tensor([0.5, 0.0]),
        torch.tensor([[3.0, 7.0], [3.0, 7.0]]),
        torch.tensor([[100.0, 10.0], [100.0, 10.0]]),
        None,
    )
    assert found.tolist() == [6.0, 1.0], "1 + 0.5 x 10; and nothing follows a discount of 0"


def test_an_action_that_is_not_allowed_is_never_the_best() -> None:
    online, target = torch.tensor([[3.0, 7.0]]), torch.tensor([[100.0, 10.0]])
    masks = torch.tensor([[1, 0]], dtype=torch.uint8)
    assert double_q_targets(torch.tensor([1.0]), torch.tensor([0.5]), online, target, masks).tolist() == [
        51.0
    ]


def test_the_loss_is_squared_near_zero_straight_beyond_and_weighted() -> None:
    found = td_errors(torch.tensor([[5.0, 0.0], [0.0, 2.5]]), torch.tensor([0, 1]), torch.tensor([2.0, 2.0]))
    assert found.tolist() == [3.0, 0.5]
    assert huber_loss(found, torch.tensor([1.0, 0.5])).item() == pytest.approx((1.0 * 2.5 + 0.5 * 0.125) / 2)


def test_what_is_drawn_more_often_weighs_less() -> None:
    sample = Sample({}, np.zeros(3, np.uint64), np.array([0.5, 0.25, 0.125]), size=4)
    # (4 x chance) to the power of -1 is 1/2, 1 and 2; divided by the largest.
    assert sample.weights(1.0).tolist() == [0.25, 0.5, 1.0]
    assert sample.weights(0.5) == pytest.approx([0.5, 2**-0.5, 1.0])


def test_an_update_tells_how_wrong_it_was_about_each_transition() -> None:
    learner = make()
    data = batch()
    data["discount"][:] = 0
    learner.update(data)
    first = learner.priorities
    assert first is not None
    assert first.shape == (8,)
    for _ in range(300):
        learner.update(data)
    assert learner.priorities is not None
    assert learner.priorities.mean() < 0.5 * first.mean(), "it learns what it sees"


def test_targets_are_renewed_after_so_many_updates() -> None:
    learner = make(target_every=3)
    before = {name: array.copy() for name, array in learner.state().items() if name.startswith("target/")}
    for number in (1, 2, 3):
        learner.update(batch(seed=number))
        state = learner.state()
        same = all(np.array_equal(state[name], array) for name, array in before.items())
        assert same == (number < 3)
    assert all(np.array_equal(state[name], state[name.replace("target/", "policy/")]) for name in before)


def test_a_checkpoint_holds_all_that_the_next_update_depends_on() -> None:
    one, two = make(target_every=4), make(target_every=4)
    for number in range(6):
        one.update(batch(seed=number))
    two.restore({name: array.copy() for name, array in one.state().items()})
    for number in range(6, 10):
        one.update(batch(seed=number))
        two.update(batch(seed=number))
    ours, theirs = one.state(), two.state()
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("network", [{"lstm": 8}, {"head": "actor-critic"}])
def test_a_network_that_dqn_cannot_train_is_refused_before_anything_runs(network: dict[str, object]) -> None:
    wish = Training(algorithm="dqn", env="CartPole-v1", settings={"network": network})
    with pytest.raises(UserError, match=next(iter(network))):
        algorithm("dqn").settings(wish)
