"""Policy gradients in their oldest form, twice: with PyTorch, and with nothing but NumPy.

Williams 1992. A batch of rollouts comes in as NumPy arrays, named arrays go out to the actors; everything between is
the algorithm's own business.
"""

import numpy as np

from callsheet.rl.nets.network import Network
from callsheet.rl.returns import discounted
from callsheet.rl.settings import RolloutSettings


class Config(RolloutSettings, frozen=True, kw_only=True):
    """What `callsheet train --set` can change."""

    environments: int = 16
    """Environments of each actor."""
    rollout: int = 64
    """Steps of each environment in one rollout."""
    batch: int = 2
    """Rollouts of one update."""
    learning_rate: float = 0.01
    """Of the gradient's steps."""
    gamma: float = 0.98
    """How much a reward one step later is worth."""
    network: Network = Network(hidden=())
    """The policy's shape: one layer, from observations to actions."""


def returns(batch, gamma):
    """What each step brought from there on, [T, B], as far as the rollout shows it; standardized."""
    goes_on = (batch["terminated"] == 0) & (batch["truncated"] == 0) & (batch["valid"] != 0)
    found = discounted(batch["reward"], gamma * goes_on.astype(np.float32))
    counts = batch["valid"] != 0
    return (found - found[counts].mean()) / (found[counts].std() + 1e-6) * counts


class WithNumPy:
    """REINFORCE for a linear policy; the gradient is worked out by hand."""

    Config = Config

    def __init__(self, spaces, config, *, seed, device):
        self.config = config
        (array,) = spaces.observations.values()
        self.weights = {
            "policy.head.weight": np.zeros((spaces.action.n, *array.shape), np.float32),
            "policy.head.bias": np.zeros(spaces.action.n, np.float32),
        }

    def update(self, batch):
        observations, actions = batch["obs.observation"][:-1], batch["action"]
        weight, bias = self.weights["policy.head.weight"], self.weights["policy.head.bias"]
        scores = observations @ weight.T + bias
        chances = np.exp(scores - scores.max(axis=-1, keepdims=True))
        chances /= chances.sum(axis=-1, keepdims=True)
        chosen = np.eye(len(bias), dtype=np.float32)[actions]
        gradient = (chosen - chances) * returns(batch, self.config.gamma)[..., None] / batch["valid"].sum()
        weight += 50 * self.config.learning_rate * np.einsum("tba,tbo->ao", gradient, observations)
        bias += 50 * self.config.learning_rate * gradient.sum(axis=(0, 1))
        return {"loss": 0.0}

    def snapshot(self):
        return self.weights

    state = snapshot

    def restore(self, arrays):
        self.weights = {name: np.array(array) for name, array in arrays.items()}


class WithPyTorch:
    """The same with any network of ours, and PyTorch to find the gradient."""

    Config = Config

    def __init__(self, spaces, config, *, seed, device):
        import torch

        from callsheet.rl.nets.torch import TorchNet

        self.config = config
        self.net = TorchNet(
            spaces, config.network, generator=torch.Generator().manual_seed(seed), device=device
        )
        named = self.net.parameters.named.values()
        self.optimizer = torch.optim.Adam(
            [one for one in named if one.requires_grad], lr=config.learning_rate
        )

    def update(self, batch):
        import torch

        observations = {
            name.removeprefix("obs."): torch.from_numpy(array[:-1]).to(self.net.device)
            for name, array in batch.items()
            if name.startswith("obs.")
        }
        distribution = self.net.distribution(self.net.forward(observations).policy)
        logp = distribution.log_prob(torch.from_numpy(batch["action"]).to(self.net.device))
        gain = torch.from_numpy(returns(batch, self.config.gamma)).to(self.net.device)
        loss = -(logp * gain).sum() / float(batch["valid"].sum())
        self.optimizer.zero_grad(set_to_none=False)
        loss.backward()
        self.optimizer.step()
        return {"loss": loss.item()}

    def snapshot(self):
        return self.net.parameters.snapshot()

    state = snapshot

    def restore(self, arrays):
        self.net.parameters.load(arrays)
