"""IMPALA's learner: rollouts of older policies in, a better policy out."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from callsheet.rl.algorithms.actor_critic import ActorCritic
from callsheet.rl.algorithms.impala.config import Config
from callsheet.rl.algorithms.learner import Arrays
from callsheet.rl.distributions.torch import Categorical, Gaussian
from callsheet.rl.nets.torch import tensors
from callsheet.rl.returns.torch import Targets, vtrace
from callsheet.rl.spaces import Spaces


class Impala:
    """See the package."""

    def __init__(self, spaces: Spaces, config: Config, *, seed: int = 0, device: str = "cpu") -> None:
        self._config = config
        self._trained = ActorCritic(spaces, config, seed=seed, device=device)
        self._net = self._trained.net

    def update(self, batch: Arrays) -> dict[str, float]:
        """Go through a batch of rollouts, [T, B] with observations [T+1, B]. `fresh` [B] says which of them count."""
        self._trained.begin(batch)
        losses = [self._learn(part) for part in self._minibatches(batch)]
        self._trained.end(batch)
        return {"loss": float(torch.stack(losses).mean())}

    def _learn(self, part: dict[str, Tensor]) -> Tensor:
        config = self._config
        self._net.parameters.zero()
        out = self._net.forward(
            {key: part[f"obs.{key}"] for key in self._trained.keys}, part.get("first"), part.get("state")
        )
        assert out.value is not None
        masks = part["mask"][:-1] if "mask" in part else None
        distribution = self._net.distribution(out.policy[:-1], masks)
        logp = distribution.log_prob(part["action"])
        targets = self._targets(part, logp.detach(), out.value.detach())
        advantage = targets.advantages
        if config.normalize_advantages:
            some = advantage[part["weight"] != 0]
            advantage = (advantage - some.mean()) / (some.std() + 1e-8)
        found = loss(
            distribution,
            logp,
            out.value[:-1],
            part["logp"],
            advantage,
            targets.values,
            part["weight"],
            config,
        )
        found.backward()  # type: ignore[no-untyped-call]
        self._trained.adam.step(clip=config.max_gradient)
        return found.detach()

    def _targets(self, part: dict[str, Tensor], logp: Tensor, values: Tensor) -> Targets:
        config = self._config
        return vtrace(
            logp - part["logp"],
            part["reward"],
            values,
            part["terminated"],
            part["truncated"],
            part["valid"],
            gamma=config.gamma,
            lam=config.lam,
            rho_clip=config.rho_clip,
            c_clip=config.c_clip,
        )

    def _minibatches(self, batch: Arrays) -> Iterator[dict[str, Tensor]]:
        """Whole rollouts of some environments, in a new order for each epoch."""
        names = [
            name for name in batch if not name.startswith("episode_") and name not in ("fresh", "progress")
        ]
        data = tensors({name: batch[name] for name in names}, self._net.device)
        data["weight"] = data["valid"].float()
        if "fresh" in batch:
            data["weight"] *= torch.from_numpy(batch["fresh"].astype(np.float32)).to(self._net.device)
        count = data["reward"].shape[1]
        if self._config.minibatches == 1:
            for _ in range(self._config.epochs):
                yield data
            return
        for _ in range(self._config.epochs):
            order = torch.from_numpy(self._trained.order.permutation(count)).to(self._net.device)
            for which in order.tensor_split(min(self._config.minibatches, count)):
                yield {name: x.index_select(0 if name == "state" else 1, which) for name, x in data.items()}

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
    logp_now: Tensor,
    value: Tensor,
    logp: Tensor,
    advantage: Tensor,
    target: Tensor,
    weight: Tensor,
    config: Config,
) -> Tensor:
    """Policy gradient (or the clipped surrogate), the value function's squared error, and the entropy, all [T, B].
    `weight` is 0 for steps that do not count."""
    if config.clip:
        ratio = (logp_now - logp).exp()
        clipped = ratio.clamp(1.0 - config.clip, 1.0 + config.clip)
        policy = -torch.minimum(ratio * advantage, clipped * advantage)
    else:
        policy = -logp_now * advantage
    each = policy + (0.5 * config.value_weight) * (value - target).square()
    if config.entropy:
        each = each - config.entropy * distribution.entropy()
    return (each * weight).sum() / weight.sum().clamp(min=1.0)
