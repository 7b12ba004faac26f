"""The parameters of a policy, name by name: NumPy and PyTorch lay them out alike, so a snapshot goes both ways."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from callsheet.errors import UserError
from callsheet.rl.nets.network import Image, Inputs, Network, inputs
from callsheet.rl.spaces import Continuous, Discrete, Spaces

SECTIONS = (16, 32, 32)
"""Channels of the three sections of the IMPALA ResNet."""
NATURE = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""Channels, kernel and stride of the Nature CNN's convolutions."""
CRITICS = ("q.1", "q.2")
"""The two critics of SAC. Not stacked in one array: PyTorch's batched product is slower on a CPU than two products."""
_HIDDEN = math.sqrt(2.0)
_SMALL = 0.01
_RESIDUAL = _HIDDEN / math.sqrt(2 * len(SECTIONS))
"""Each residual block adds its share, so that the sum of all starts no larger than one layer's output."""


class Parameter(NamedTuple):
    """One array, and how it starts."""

    name: str
    shape: tuple[int, ...]
    gain: float = 0.0
    """Scale of the orthogonal matrix it starts as; 0 where it starts as a constant."""
    constant: float = 0.0

    @property
    def size(self) -> int:
        return math.prod(self.shape)


class Layout:
    """All parameters of a resolved network, in the order in which they lie in one flat vector.

    Names are ``<part>.<layer>.weight``. The parts are ``torso`` (what policy and value share), ``policy``, ``value``
    and ``q``; the parameters of a part lie side by side. SAC's two critics are ``q.1`` and ``q.2``; they share what sees
    images.
    """

    def __init__(self, network: Network, spaces: Spaces) -> None:
        self.inputs: Inputs = inputs(network, spaces)
        self.network = network
        self._found: list[Parameter] = []
        head = network.head
        if head == "q":
            width = self._trunk("torso")
            actions = outputs(spaces)
            if network.dueling:
                self._linear("q.advantage", width, actions, 1.0)
                self._linear("q.value", width, 1, 1.0)
            else:
                self._linear("q.head", width, actions, 1.0)
        elif head == "soft-actor-critic":
            self._linear("policy.head", self._trunk("policy"), 2 * outputs(spaces), _SMALL)
            seen = self._images("q") + self.inputs.width + outputs(spaces)
            for critic in CRITICS:
                self._linear(f"{critic}.head", self._hidden(critic, seen), 1, 1.0)
        else:
            both = self._trunk("torso") if network.shared else 0
            self._linear("policy.head", both or self._trunk("policy"), outputs(spaces), _SMALL)
            if isinstance(spaces.action, Continuous):
                self._found.append(Parameter("policy.log_std", (outputs(spaces),), constant=network.log_std))
            self._linear("value.head", both or self._trunk("value"), 1, 1.0)
        self.parameters: tuple[Parameter, ...] = tuple(self._found)
        self.size = sum(one.size for one in self.parameters)

    def part(self, *names: str) -> slice:
        """Where the parameters of neighboring parts lie in the flat vector."""
        start = stop = -1
        offset = 0
        for one in self.parameters:
            if one.name.startswith(tuple(f"{name}." for name in names)):
                start = offset if start < 0 else start
                stop = offset + one.size
            offset += one.size
        return slice(max(start, 0), max(stop, 0))

    def _trunk(self, part: str) -> int:
        """All but the heads; how wide its output is."""
        network = self.network
        width = self._hidden(part, self._images(part) + self.inputs.width)
        if not network.lstm:
            return width
        self._found.append(Parameter(f"{part}.lstm.input", (4 * network.lstm, width), 1.0))
        self._found.append(Parameter(f"{part}.lstm.hidden", (4 * network.lstm, network.lstm), 1.0))
        self._found.append(Parameter(f"{part}.lstm.bias", (4 * network.lstm,)))
        return network.lstm

    def _images(self, part: str) -> int:
        for one in self.inputs.images:
            self._image(f"{part}.{self.network.torso}.{one.key}", one)
        return len(self.inputs.images) * (self.network.embed or 0)

    def _hidden(self, part: str, width: int) -> int:
        for index, units in enumerate(self.network.hidden or ()):
            self._linear(f"{part}.mlp.{index}", width, units, _HIDDEN)
            width = units
        return width

    def _image(self, name: str, image: Image) -> None:
        channels, height, width = image.channels, image.height, image.width
        if self.network.torso == "nature":
            for index, (units, kernel, stride) in enumerate(NATURE):
                self._convolution(f"{name}.{index}", channels, units, kernel)
                channels = units
                height, width = (height - kernel) // stride + 1, (width - kernel) // stride + 1
        else:
            for index, units in enumerate(SECTIONS):
                self._convolution(f"{name}.{index}.in", channels, units, 3)
                for block in ("a", "b"):
                    self._convolution(f"{name}.{index}.{block}.0", units, units, 3)
                    self._convolution(f"{name}.{index}.{block}.1", units, units, 3, _RESIDUAL)
                channels = units
                height, width = (height + 1) // 2, (width + 1) // 2
        self._linear(f"{name}.embed", channels * height * width, self.network.embed or 0, _HIDDEN)

    def _convolution(self, name: str, inside: int, outside: int, kernel: int, gain: float = _HIDDEN) -> None:
        self._found.append(Parameter(f"{name}.weight", (outside, inside, kernel, kernel), gain))
        self._found.append(Parameter(f"{name}.bias", (outside,)))

    def _linear(self, name: str, inside: int, outside: int, gain: float) -> None:
        self._found.append(Parameter(f"{name}.weight", (outside, inside), gain))
        self._found.append(Parameter(f"{name}.bias", (outside,)))


def outputs(spaces: Spaces) -> int:
    """Actions to choose from, or numbers in a continuous action."""
    return spaces.action.n if isinstance(spaces.action, Discrete) else len(spaces.action.low)


Snapshot = Mapping[str, NDArray[np.generic]]

_SHOWN = 3


class ForeignSnapshot(UserError):
    """The arrays are not those of this policy."""


def check(snapshot: Snapshot, parameters: Iterable[Parameter]) -> None:
    """Refuse a snapshot in which parameters are missing or have another shape."""
    wrong = []
    for one in parameters:
        found = snapshot.get(one.name)
        if found is None:
            wrong.append(f"{one.name} is missing")
        elif found.shape != one.shape:
            wrong.append(f"{one.name} is {list(found.shape)}, not {list(one.shape)}")
    if wrong:
        more = f", and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        raise ForeignSnapshot(
            f"these are the parameters of another policy: {'; '.join(wrong[:_SHOWN])}{more}",
            fix="use the same environment and the same network as when they were made",
        )
