"""Adam on one flat tensor: 13 us for a 64x64 policy and value, where PyTorch's default takes 220 us on their tensors.

It uses PyTorch's own fused kernel, without the bookkeeping around it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_ALL = slice(None)


class Adam:
    """Adam over flat values and gradients, as in `Parameters`."""

    def __init__(
        self,
        values: Tensor,
        grads: Tensor,
        *,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        self.lr = lr
        self._values = values.detach()
        self._grads = grads
        self._betas = betas
        self._eps = eps
        self._mean = torch.zeros_like(self._values)
        self._square = torch.zeros_like(self._values)
        self._steps = torch.zeros((), device=values.device)

    def step(self, *, clip: float | None = None) -> Tensor | None:
        """One step. With `clip`, the gradients' norm is first limited to it, and the original norm is returned as a tensor, so that a
        learner on a GPU does not wait for it."""
        norm: Tensor | None = None
        if clip is not None:
            norm = torch.linalg.vector_norm(self._grads)
            self._grads.mul_((clip / (norm + 1e-6)).clamp_(max=1.0))
        self.begin()
        self.move()
        return norm

    def begin(self) -> None:
        """Begin a step that `move` completes part by part."""
        self._steps.add_(1)

    def move(self, where: slice = _ALL) -> None:
        """Step these parameters. Different slices may move at the same time."""
        torch._fused_adam_(
            [self._values[where]],
            [self._grads[where]],
            [self._mean[where]],
            [self._square[where]],
            [],
            [self._steps],
            lr=self.lr,
            beta1=self._betas[0],
            beta2=self._betas[1],
            weight_decay=0.0,
            eps=self._eps,
            amsgrad=False,
            maximize=False,
        )

    def state(self) -> dict[str, NDArray[np.generic]]:
        """For a checkpoint: `mean`, `square` and `steps`. On a CPU these are views."""
        return {
            "mean": self._mean.cpu().numpy(),
            "square": self._square.cpu().numpy(),
            "steps": self._steps.cpu().numpy(),
        }

    def restore(self, arrays: Mapping[str, NDArray[np.generic]]) -> None:
        self._mean.copy_(torch.from_numpy(np.array(arrays["mean"], np.float32)))
        self._square.copy_(torch.from_numpy(np.array(arrays["square"], np.float32)))
        self._steps.fill_(float(arrays["steps"]))
