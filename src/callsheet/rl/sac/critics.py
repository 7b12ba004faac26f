"""The two critics: each learns and judges by itself, so that they can do it side by side."""

from __future__ import annotations

import torch
from torch import Tensor

from callsheet.rl.nets.layout import CRITICS
from callsheet.rl.nets.torch import Layers, TorchNet


class Critics:
    """Both critics of a network. They begin with what `TorchNet.seen` gives; gradients end there too."""

    def __init__(self, net: TorchNet) -> None:
        self._layers = tuple(Layers(net.parameters, name, net.network) for name in CRITICS)
        first = net.layout.part("q").start
        wheres = [net.layout.part(name) for name in CRITICS]
        self.parts = tuple(slice(one.start - first, one.stop - first) for one in wheres)
        """Where the parameters of each lie among those of "q"."""

    def values(self, seen: Tensor) -> Tensor:
        """[2, B]."""
        return torch.stack([layers.forward(seen).squeeze(-1) for layers in self._layers])

    def learn(self, which: int, slope: Tensor, *, inputs: bool) -> Tensor | None:
        """Set the gradients of one, from a loss's slope [B] over its last values; and give that over what it saw, if
        it is asked for."""
        return self._layers[which].backward(slope.unsqueeze(-1), parameters=True, inputs=inputs)

    def judge(self, which: int, seen: Tensor) -> tuple[Tensor, Tensor]:
        """Values [B] of one, and their slopes over what it saw [B, width]; it stays as it is. The slopes live until it
        is called again."""
        values = self._layers[which].forward(seen)
        back = self._layers[which].backward(torch.ones_like(values), parameters=False, inputs=True)
        assert back is not None
        return values.squeeze(-1), back
