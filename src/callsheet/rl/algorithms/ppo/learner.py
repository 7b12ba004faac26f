"""PPO's learner."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from callsheet.rl.algorithms.actor_critic import ActorCriticLearner
from callsheet.rl.algorithms.learner import Arrays
from callsheet.rl.algorithms.ppo.config import Config
from callsheet.rl.nets.torch import tensors
from callsheet.rl.nets.torch.distributions import Categorical, Gaussian
from callsheet.rl.returns import gae
from callsheet.rl.spaces import Spaces


class PPO(ActorCriticLearner):
    """Equal seeds and batches give equal weights, bit by bit."""

    def __init__(self, spaces: Spaces, config: Config, *, seed: int = 0, device: str = "cpu") -> None:
        self._config = config
        super().__init__(spaces, config, seed=seed, device=device)

    def update(self, batch: Arrays) -> dict[str, float]:
        """Make several passes over the steps of a batch."""
        config = self._config
        self._begin_update(batch)
        data = self._prepare(batch)
        losses = []
        for part in self._minibatches(data):
            self._net.parameters.zero()
            out = self._net.forward(
                {key: part[f"obs.{key}"] for key in self._keys}, part.get("first"), part.get("state")
            )
            assert out.value is not None
            loss = ppo_loss(
                self._net.distribution(out.policy, part.get("mask")),
                out.value,
                part["action"],
                part["logp"],
                part["advantage"],
                part["target"],
                part.get("weight"),
                config,
            )
            loss.backward()  # type: ignore[no-untyped-call]
            self._adam.step(clip=config.max_gradient)
            losses.append(loss.detach())
        self._end_update(batch)
        return {"loss": float(torch.stack(losses).mean())}

    def _prepare(self, batch: Arrays) -> dict[str, Tensor]:
        """Advantages, targets and the loss's other inputs: valid steps in one axis, or whole rollouts for an LSTM."""
        steps = len(batch["reward"])
        values = np.concatenate((batch["value"], self._last_values(batch)))
        flags = (batch["terminated"], batch["truncated"], batch["valid"])
        targets = gae(batch["reward"], values, *flags, gamma=self._config.gamma, lam=self._config.lam)
        valid = batch["valid"] != 0
        kept = targets.advantages[valid]
        advantages = (targets.advantages - kept.mean()) / (kept.std() + 1e-8)
        names = [name for name in batch if name.startswith("obs.") or name == "mask"]
        data = {name: batch[name][:steps] for name in names}
        data |= {"action": batch["action"], "logp": batch["logp"]}
        data |= {"advantage": advantages, "target": targets.values}
        if self._net.state_size:
            data |= {"first": batch["first"][:steps], "state": batch["state"]}
            data["weight"] = batch["valid"].astype(np.float32)
        elif not valid.all():
            data = {name: array[valid] for name, array in data.items()}
        else:
            data = {name: array.reshape(-1, *array.shape[2:]) for name, array in data.items()}
        return tensors(data, self._net.device)

    @torch.no_grad()
    def _last_values(self, batch: Arrays) -> np.ndarray:
        """Values of the observation after the last action."""
        obs = tensors({key: batch[f"obs.{key}"][-1:] for key in self._keys}, self._net.device)
        if not self._net.state_size:
            out = self._net.forward(obs)
        else:  # the state depends on the whole rollout
            whole = tensors({key: batch[f"obs.{key}"] for key in self._keys}, self._net.device)
            recurrent = tensors({"first": batch["first"], "state": batch["state"]}, self._net.device)
            out = self._net.forward(whole, recurrent["first"], recurrent["state"])
        assert out.value is not None
        return out.value[-1:].cpu().numpy()

    def _minibatches(self, data: dict[str, Tensor]) -> Iterator[dict[str, Tensor]]:
        """Shuffled steps (rollouts, for an LSTM) in parts of equal size, for each epoch."""
        recurrent = bool(self._net.state_size)
        count = data["action"].shape[1] if recurrent else len(data["action"])
        size = max(1, self._config.minibatch // len(data["action"])) if recurrent else self._config.minibatch
        parts = max(1, round(count / size))
        for _ in range(self._config.epochs):
            order = torch.from_numpy(self._shuffle.permutation(count)).to(self._net.device)
            for which in order.tensor_split(parts):
                yield {
                    name: x.index_select(1 if recurrent and name != "state" else 0, which)
                    for name, x in data.items()
                }


def ppo_loss(
    distribution: Categorical | Gaussian,
    value: Tensor,
    action: Tensor,
    logp: Tensor,
    advantage: Tensor,
    target: Tensor,
    weight: Tensor | None,
    config: Config,
) -> Tensor:
    """The clipped surrogate, the squared value error and the entropy bonus. `weight` is 0 for invalid steps; None: all are
    valid."""
    ratio = (distribution.log_prob(action) - logp).exp()
    clipped = ratio.clamp(1.0 - config.clip, 1.0 + config.clip)
    policy = -(ratio * advantage).minimum(clipped * advantage)
    each = policy + (0.5 * config.value_weight) * (value - target).square()
    if config.entropy:
        each = each - config.entropy * distribution.entropy()
    if weight is None:
        return each.mean()
    return (each * weight).sum() / weight.sum().clamp(min=1.0)
