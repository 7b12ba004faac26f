"""All parameters of a network in one flat tensor and all gradients in another.

For small networks, an optimizer that goes from tensor to tensor takes as long as the network itself. Here a step, a clip, a
target network's update and a copy to or from a GPU are one operation; layers use named views.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from callsheet.rl.nets.parameters import Parameter, ParameterLayout, Snapshot, check_snapshot


class Parameters:
    """The named parameters of a layout. The same seed initializes them equally."""

    def __init__(
        self,
        layout: ParameterLayout,
        *,
        generator: torch.Generator | None = None,
        device: torch.device | str = "cpu",
        trained: bool = True,
    ) -> None:
        self._layout = layout
        start = torch.zeros(layout.size)
        if generator is not None:
            threads = torch.get_num_threads()
            torch.set_num_threads(1)  # so that a seed gives the same numbers on any machine
            for one, view in _views(layout, start):
                _initialize(one, view, generator)
            torch.set_num_threads(threads)
        self.values = start.to(device)
        """All parameters. Change them under `torch.no_grad` or through an optimizer."""
        self.grads = torch.zeros_like(self.values) if trained else torch.zeros(0)
        """All gradients: `backward` adds to them, `zero` clears them."""
        self.named: dict[str, Tensor] = {}
        # Detached views are leaves: autograd writes each gradient straight to its place instead of building a flat
        # tensor of zeros for each view.
        for one, view in _views(layout, self.values):
            self.named[one.name] = view.detach().requires_grad_(trained)
        if trained:
            for one, view in _views(layout, self.grads):
                self.named[one.name].grad = view

    def __getitem__(self, name: str) -> Tensor:
        return self.named[name]

    def zero(self) -> None:
        """Clear all gradients. (Never set a `.grad` to None: it is a view.)"""
        self.grads.zero_()

    def part(self, *names: str) -> tuple[Tensor, Tensor]:
        """Flat views of the values and gradients of neighboring parts ("policy", "value", "q", "torso")."""
        where = self._layout.part(*names)
        return self.values[where], self.grads[where]

    def snapshot(self, *parts: str) -> dict[str, NDArray[np.generic]]:
        """Named arrays of all parts, or of some. On a CPU they are views that the next update changes."""
        flat = self.values.detach().cpu()
        return {
            one.name: view.numpy()
            for one, view in _views(self._layout, flat)
            if not parts or one.name.split(".", 1)[0] in parts
        }

    def load(self, snapshot: Snapshot) -> None:
        """Copy all named arrays. Raises, and changes nothing, if they belong to another network."""
        self._copy(snapshot, self._layout.parameters)

    def load_part(self, snapshot: Snapshot, *parts: str) -> None:
        """Copy the named arrays of some parts."""
        self._copy(snapshot, tuple(o for o in self._layout.parameters if o.name.split(".", 1)[0] in parts))

    def _copy(self, snapshot: Snapshot, parameters: tuple[Parameter, ...]) -> None:
        check_snapshot(snapshot, parameters)
        taken = {one.name for one in parameters}
        flat = self.values.detach().cpu()
        for one, view in _views(self._layout, flat):
            if one.name in taken:
                np.copyto(view.numpy(), snapshot[one.name], casting="same_kind")
        if self.values.device.type != "cpu":
            self.values.copy_(flat)


def tensors(
    arrays: Mapping[str, NDArray[np.generic]], device: torch.device | str = "cpu"
) -> dict[str, Tensor]:
    """Arrays as tensors; on a CPU they share memory."""
    return {name: torch.from_numpy(array).to(device, non_blocking=True) for name, array in arrays.items()}


def _views(layout: ParameterLayout, flat: Tensor) -> list[tuple[Parameter, Tensor]]:
    views = []
    start = 0
    for one in layout.parameters:
        views.append((one, flat[start : start + one.size].view(one.shape)))
        start += one.size
    return views


def _initialize(one: Parameter, view: Tensor, generator: torch.Generator) -> None:
    if one.gain:
        torch.nn.init.orthogonal_(view, one.gain, generator=generator)
    else:
        view.fill_(one.constant)


def _accept_read_only() -> None:
    """PyTorch warns once about a read-only array. Batches are read-only on purpose, so trigger the warning here, silently."""
    array = np.zeros(1, np.float32)
    array.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.from_numpy(array)


_accept_read_only()
