"""PPO's learner: a batch of rollouts in, a better policy out."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from callsheet.rl.algorithms.actor_critic import ActorCritic
from callsheet.rl.algorithms.learner import Arrays
from callsheet.rl.algorithms.ppo.config import Config
from callsheet.rl.distributions.torch import Categorical, Gaussian
from callsheet.rl.nets.torch import tensors
from callsheet.rl.returns import gae
from callsheet.rl.spaces import Spaces


class PPO:
    """See the package. Equal seeds and batches give equal weights, bit by bit."""

    def __init__(self, spaces: Spaces, config: Config, *, seed: int = 0, device: str = "cpu") -> None:
        self._config = config
        self._trained = ActorCritic(spaces, config, seed=seed, device=device)
        self._net = self._trained.net

    def update(self, batch: Arrays) -> dict[str, float]:
        """Several epochs over the steps of a batch."""
        config = self._config
        self._trained.begin(batch)
        data = self._prepare(batch)
        losses = []
        for part in self._minibatches(data):
            self._net.parameters.zero()
            out = self._net.forward(
                {key: part[f"obs.{key}"] for key in self._trained.keys}, part.get("first"), part.get("state")
            )
            assert out.value is not None
            found = loss(
                self._net.distribution(out.policy, part.get("mask")),
                out.value,
                part["action"],
                part["logp"],
                part["advantage"],
                part["target"],
                part.get("weight"),
                config,
            )
            found.backward()  # type: ignore[no-untyped-call]
            self._trained.adam.step(clip=config.max_gradient)
            losses.append(found.detach())
        self._trained.end(batch)
        return {"loss": float(torch.stack(losses).mean())}

    def _prepare(self, batch: Arrays) -> dict[str, Tensor]:
        """Advantages and targets, and what the loss needs: steps that count in one row, or rollouts for an LSTM."""
        steps = len(batch["reward"])
        values = np.concatenate((batch["value"], self._last_values(batch)))
        flags = (batch["terminated"], batch["truncated"], batch["valid"])
        targets = gae(batch["reward"], values, *flags, gamma=self._config.gamma, lam=self._config.lam)
        counts = batch["valid"] != 0
        some = targets.advantages[counts]
        advantages = (targets.advantages - some.mean()) / (some.std() + 1e-8)
        names = [name for name in batch if name.startswith("obs.") or name == "mask"]
        found = {name: batch[name][:steps] for name in names}
        found |= {"action": batch["action"], "logp": batch["logp"]}
        found |= {"advantage": advantages, "target": targets.values}
        if self._net.state_size:
            found |= {"first": batch["first"][:steps], "state": batch["state"]}
            found["weight"] = batch["valid"].astype(np.float32)
        elif not counts.all():
            found = {name: array[counts] for name, array in found.items()}
        else:
            found = {name: array.reshape(-1, *array.shape[2:]) for name, array in found.items()}
        return tensors(found, self._net.device)

    @torch.no_grad()
    def _last_values(self, batch: Arrays) -> np.ndarray:
        """Of the observation that the last action led to."""
        obs = tensors({key: batch[f"obs.{key}"][-1:] for key in self._trained.keys}, self._net.device)
        if not self._net.state_size:
            out = self._net.forward(obs)
        else:  # its state follows from the whole rollout
            whole = tensors({key: batch[f"obs.{key}"] for key in self._trained.keys}, self._net.device)
            some = tensors({"first": batch["first"], "state": batch["state"]}, self._net.device)
            out = self._net.forward(whole, some["first"], some["state"])
        assert out.value is not None
        return out.value[-1:].cpu().numpy()

    def _minibatches(self, data: dict[str, Tensor]) -> Iterator[dict[str, Tensor]]:
        """Steps (rollouts, for an LSTM) in a new order for each epoch, in parts of equal size."""
        recurrent = bool(self._net.state_size)
        count = data["action"].shape[1] if recurrent else len(data["action"])
        size = max(1, self._config.minibatch // len(data["action"])) if recurrent else self._config.minibatch
        parts = max(1, round(count / size))
        for _ in range(self._config.epochs):
            order = torch.from_numpy(self._trained.order.permutation(count)).to(self._net.device)
            for which in order.tensor_split(parts):
                yield {
                    name: x.index_select(1 if recurrent and name != "state" else 0, which)
                    for name, x in data.items()
                }

    def snapshot(self) -> Arrays:
        """Parameters and statistics."""
        return self._trained.snapshot()

    def state(self) -> Arrays:
        """Weights, optimizer, statistics, and where chance was."""
        return self._trained.state()

    def restore(self, arrays: Arrays) -> None:
        """Go on from there."""
        self._trained.restore(arrays)


def loss(
    distribution: Categorical | Gaussian,
    value: Tensor,
    action: Tensor,
    logp: Tensor,
    advantage: Tensor,
    target: Tensor,
    weight: Tensor | None,
    config: Config,
) -> Tensor:
    """The clipped surrogate, the value function's squared error, and the entropy. `weight` is 0 for steps that do not
    count; None: all do."""
    ratio = (distribution.log_prob(action) - logp).exp()
    clipped = ratio.clamp(1.0 - config.clip, 1.0 + config.clip)
    policy = -(ratio * advantage).minimum(clipped * advantage)
    each = policy + (0.5 * config.value_weight) * (value - target).square()
    if config.entropy:
        each = each - config.entropy * distribution.entropy()
    if weight is None:
        return each.mean()
    return (each * weight).sum() / weight.sum().clamp(min=1.0)
