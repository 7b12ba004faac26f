"""The two critics, side by side where there is a core for each."""

from __future__ import annotations

import torch
from torch import Tensor

from callsheet.rl.nets.layout import CRITICS
from callsheet.rl.nets.torch import ALONE, Layers, Pair, TorchNet


class Critics:
    """Both critics of a network. They begin with what `TorchNet.seen` gives; gradients end there too."""

    def __init__(self, net: TorchNet) -> None:
        self._first, self._second = (Layers(net.parameters, name, net.network) for name in CRITICS)

    def values(self, seen: Tensor, pair: Pair = ALONE) -> Tensor:
        """[2, B], as if they came from nowhere: `learn` and `blame` take what a loss says about them."""
        found = pair.both(lambda: self._first.forward(seen), lambda: self._second.forward(seen))
        return torch.cat(found, dim=1).t().contiguous().requires_grad_()

    def learn(self, slope: Tensor, seen: Tensor, pair: Pair = ALONE) -> None:
        """Set the gradients of both, from a loss's slope over their last values; pass it on to what they saw, if that
        was learnt too (as pictures are)."""
        back = self._backward(slope, pair, parameters=True, inputs=seen.requires_grad)
        if back is not None:
            seen.backward(back)  # type: ignore[no-untyped-call]

    def blame(self, slope: Tensor, pair: Pair = ALONE) -> Tensor:
        """The slope over what both saw, [B, width]; they themselves are taken as they are."""
        back = self._backward(slope, pair, parameters=False, inputs=True)
        assert back is not None
        return back

    def _backward(self, slope: Tensor, pair: Pair, *, parameters: bool, inputs: bool) -> Tensor | None:
        one, two = slope.unsqueeze(-1)
        first, second = pair.both(
            lambda: self._first.backward(one, parameters=parameters, inputs=inputs),
            lambda: self._second.backward(two, parameters=parameters, inputs=inputs),
        )
        return None if first is None or second is None else first.add_(second)
