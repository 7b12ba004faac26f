"""The parameters of a network by name. NumPy and PyTorch use the same layout, so snapshots work for both."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from callsheet.errors import UserError
from callsheet.rl.nets.network import ImageInput, Inputs, Network, inputs
from callsheet.rl.spaces import Continuous, Discrete, Spaces

SECTIONS = (16, 32, 32)
"""Channels of the three sections of the IMPALA ResNet."""
NATURE = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""Channels, kernel and stride of the Nature CNN's convolutions."""
CRITICS = ("q.1", "q.2")
"""SAC's two critics. Not stacked in one array: on a CPU, PyTorch's batched product is slower than two products."""
_HIDDEN_GAIN = math.sqrt(2.0)
_POLICY_GAIN = 0.01
_RESIDUAL_GAIN = _HIDDEN_GAIN / math.sqrt(2 * len(SECTIONS))
"""Keeps the sum of all residual blocks initially no larger than the output of one layer."""


class Parameter(NamedTuple):
    """One array and its initialization."""

    name: str
    shape: tuple[int, ...]
    gain: float = 0.0
    """Scale of its orthogonal initialization; 0: initialized with `constant`."""
    constant: float = 0.0

    @property
    def size(self) -> int:
        return math.prod(self.shape)


class ParameterLayout:
    """All parameters of a resolved network, in their order within one flat vector.

    Names are ``<part>.<layer>.weight``. The parts are ``torso`` (shared by policy and value), ``policy``, ``value`` and
    ``q``, each contiguous. SAC's critics are ``q.1`` and ``q.2``; they share the image torso.
    """

    def __init__(self, network: Network, spaces: Spaces) -> None:
        self.inputs: Inputs = inputs(network, spaces)
        self.network = network
        self._parameters: list[Parameter] = []
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
            self._linear("policy.head", self._trunk("policy"), 2 * outputs(spaces), _POLICY_GAIN)
            width = self._images("q") + self.inputs.width + outputs(spaces)
            for critic in CRITICS:
                self._linear(f"{critic}.head", self._hidden(critic, width), 1, 1.0)
        else:
            shared = self._trunk("torso") if network.shared else 0
            self._linear("policy.head", shared or self._trunk("policy"), outputs(spaces), _POLICY_GAIN)
            if isinstance(spaces.action, Continuous):
                self._parameters.append(
                    Parameter("policy.log_std", (outputs(spaces),), constant=network.log_std)
                )
            self._linear("value.head", shared or self._trunk("value"), 1, 1.0)
        self.parameters: tuple[Parameter, ...] = tuple(self._parameters)
        self.size = sum(one.size for one in self.parameters)

    def part(self, *names: str) -> slice:
        """The slice of neighboring parts within the flat vector."""
        start = stop = -1
        offset = 0
        for one in self.parameters:
            if one.name.startswith(tuple(f"{name}." for name in names)):
                start = offset if start < 0 else start
                stop = offset + one.size
            offset += one.size
        return slice(max(start, 0), max(stop, 0))

    def _trunk(self, part: str) -> int:
        """Everything but the heads; returns the width of its output."""
        network = self.network
        width = self._hidden(part, self._images(part) + self.inputs.width)
        if not network.lstm:
            return width
        self._parameters.append(Parameter(f"{part}.lstm.input", (4 * network.lstm, width), 1.0))
        self._parameters.append(Parameter(f"{part}.lstm.hidden", (4 * network.lstm, network.lstm), 1.0))
        self._parameters.append(Parameter(f"{part}.lstm.bias", (4 * network.lstm,)))
        return network.lstm

    def _images(self, part: str) -> int:
        for one in self.inputs.images:
            self._image(f"{part}.{self.network.torso}.{one.key}", one)
        return len(self.inputs.images) * (self.network.embed or 0)

    def _hidden(self, part: str, width: int) -> int:
        for index, units in enumerate(self.network.hidden or ()):
            self._linear(f"{part}.mlp.{index}", width, units, _HIDDEN_GAIN)
            width = units
        return width

    def _image(self, name: str, image: ImageInput) -> None:
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
                    self._convolution(f"{name}.{index}.{block}.1", units, units, 3, _RESIDUAL_GAIN)
                channels = units
                height, width = (height + 1) // 2, (width + 1) // 2
        self._linear(f"{name}.embed", channels * height * width, self.network.embed or 0, _HIDDEN_GAIN)

    def _convolution(
        self, name: str, inside: int, outside: int, kernel: int, gain: float = _HIDDEN_GAIN
    ) -> None:
        self._parameters.append(Parameter(f"{name}.weight", (outside, inside, kernel, kernel), gain))
        self._parameters.append(Parameter(f"{name}.bias", (outside,)))

    def _linear(self, name: str, inside: int, outside: int, gain: float) -> None:
        self._parameters.append(Parameter(f"{name}.weight", (outside, inside), gain))
        self._parameters.append(Parameter(f"{name}.bias", (outside,)))


def outputs(spaces: Spaces) -> int:
    """Number of discrete actions, or dimensions of a continuous one."""
    return spaces.action.n if isinstance(spaces.action, Discrete) else len(spaces.action.low)


Snapshot = Mapping[str, NDArray[np.generic]]

_MAX_LISTED = 3


class SnapshotMismatch(UserError):
    """A snapshot belongs to another network."""


def check_snapshot(snapshot: Snapshot, parameters: Iterable[Parameter]) -> None:
    """Raise if parameters are missing or have another shape."""
    wrong = []
    for one in parameters:
        array = snapshot.get(one.name)
        if array is None:
            wrong.append(f"{one.name} is missing")
        elif array.shape != one.shape:
            wrong.append(f"{one.name} is {list(array.shape)}, not {list(one.shape)}")
    if wrong:
        more = f", and {len(wrong) - _MAX_LISTED} more" if len(wrong) > _MAX_LISTED else ""
        raise SnapshotMismatch(
            f"these parameters belong to another network: {'; '.join(wrong[:_MAX_LISTED])}{more}",
            fix="use the environment and the network that they were made with",
        )
