"""IMPALA's learner."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from callsheet.rl.algorithms.actor_critic import ActorCriticLearner
from callsheet.rl.algorithms.impala.config import Config
from callsheet.rl.algorithms.learner import Arrays
from callsheet.rl.nets.torch import tensors
from callsheet.rl.nets.torch.distributions import Categorical, Gaussian
from callsheet.rl.returns.torch import Targets, vtrace
from callsheet.rl.spaces import Spaces


class Impala(ActorCriticLearner):
    """Learns from rollouts of older policies."""

    def __init__(self, spaces: Spaces, config: Config, *, seed: int = 0, device: str = "cpu") -> None:
        self._config = config
        super().__init__(spaces, config, seed=seed, device=device)

    def update(self, batch: Arrays) -> dict[str, float]:
        """Learn from a batch of rollouts, [T, B] with observations [T+1, B]. `fresh` [B] marks those that are not too old."""
        self._begin_update(batch)
        losses = [self._learn(part) for part in self._minibatches(batch)]
        self._end_update(batch)
        return {"loss": float(torch.stack(losses).mean())}

    def _learn(self, part: dict[str, Tensor]) -> Tensor:
        config = self._config
        self._net.parameters.zero()
        out = self._net.forward(
            {key: part[f"obs.{key}"] for key in self._keys}, part.get("first"), part.get("state")
        )
        assert out.value is not None
        masks = part["mask"][:-1] if "mask" in part else None
        distribution = self._net.distribution(out.policy[:-1], masks)
        logp = distribution.log_prob(part["action"])
        targets = self._targets(part, logp.detach(), out.value.detach())
        advantage = targets.advantages
        if config.normalize_advantages:
            kept = advantage[part["weight"] != 0]
            advantage = (advantage - kept.mean()) / (kept.std() + 1e-8)
        loss = impala_loss(
            distribution,
            logp,
            out.value[:-1],
            part["logp"],
            advantage,
            targets.values,
            part["weight"],
            config,
        )
        loss.backward()  # type: ignore[no-untyped-call]
        self._adam.step(clip=config.max_gradient)
        return loss.detach()

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
        """Shuffled whole rollouts, for each epoch."""
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
            order = torch.from_numpy(self._shuffle.permutation(count)).to(self._net.device)
            for which in order.tensor_split(min(self._config.minibatches, count)):
                yield {name: x.index_select(0 if name == "state" else 1, which) for name, x in data.items()}


def impala_loss(
    distribution: Categorical | Gaussian,
    logp_now: Tensor,
    value: Tensor,
    logp: Tensor,
    advantage: Tensor,
    target: Tensor,
    weight: Tensor,
    config: Config,
) -> Tensor:
    """Policy gradient (or the clipped surrogate), the squared value error and the entropy bonus, all [T, B]. `weight` is 0
    for steps to ignore."""
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
