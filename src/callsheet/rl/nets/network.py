"""The description of a network, from which actors and learners build the same one.

Each image goes through its own torso. The result is joined with all other observations (sorted by name), then passes
through the hidden layers, the LSTM if there is one, and the heads.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import msgspec

from callsheet.errors import Misconfigured
from callsheet.rl.spaces import Array, Continuous, Discrete, Spaces

Head = Literal["actor-critic", "q", "soft-actor-critic"]

SMALLEST_NATURE = 36
"""Pixels. Smaller images vanish in the three convolutions of the Nature torso."""
_MAX_CHANNELS = 32
_EMBED = {"nature": 512, "resnet": 256}


class Network(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A network. `resolve` replaces "auto" and null by what suits the environment."""

    head: Head = "actor-critic"
    """What it computes: "actor-critic" (action probabilities and a value), "q" (the value of each action), or
    "soft-actor-critic" (a squashed Gaussian and two critics)."""
    torso: Literal["auto", "mlp", "nature", "resnet"] = "auto"
    """How images are processed. "auto": the Nature CNN; "mlp": flattened into vectors."""
    hidden: tuple[int, ...] | None = None
    """Widths of the hidden layers after the torso. Default: (64, 64); (128, 128) for "q"; (256, 256) for
    "soft-actor-critic"; none for images alone, (256,) for images with other observations."""
    activation: Literal["auto", "tanh", "relu"] = "auto"
    """Activation of the hidden layers. Default: tanh for "actor-critic" without images, otherwise relu."""
    embed: int | None = None
    """Width of the torso's last layer. Default: 512 for Nature, 256 for the ResNet."""
    lstm: int = 0
    """LSTM units; 0: no LSTM."""
    shared: bool | None = None
    """Whether policy and value share everything but their heads ("actor-critic" only). Default: only with images or an LSTM."""
    dueling: bool = False
    """Split "q" into a state value and advantages."""
    log_std: float = 0.0
    """Initial log standard deviation of the Gaussian, for continuous actions with "actor-critic"."""


class VectorInput(NamedTuple):
    """An observation that is flattened and joined with the others."""

    key: str
    size: int
    scale: float
    """Factor that brings bytes to 0..1."""
    normal: bool
    """Whether running statistics apply: only to floating-point numbers."""


class ImageInput(NamedTuple):
    """An observation with its own torso."""

    key: str
    channels: int
    height: int
    width: int
    last: bool
    """Whether the channels are the last axis."""
    scale: float


class Inputs(NamedTuple):
    """The observations in the network's order."""

    vectors: tuple[VectorInput, ...]
    images: tuple[ImageInput, ...]

    @property
    def width(self) -> int:
        """Total size of the vectors."""
        return sum(vector.size for vector in self.vectors)


def resolve(network: Network, spaces: Spaces) -> Network:
    """The network with all defaults filled in. Raises if it cannot work in this environment."""
    _check(network, spaces)
    images = [array for array in spaces.observations.values() if image("", array) is not None]
    torso = network.torso
    if torso == "auto":
        large = images and all(_fits_nature(array) for array in images)
        torso = "nature" if large else "mlp"
    if torso in _EMBED and not images:
        raise Misconfigured(
            f"the torso {torso!r} is for images, but no observation is one: {_shapes(spaces)}",
            fix='use "mlp" or "auto"; an image has three axes (or two) of unsigned bytes',
        )
    if torso == "nature" and not all(_fits_nature(array) for array in images):
        raise Misconfigured(
            f'the torso "nature" needs images of at least {SMALLEST_NATURE}x{SMALLEST_NATURE}: {_shapes(spaces)}',
            fix='use "resnet" or "mlp"',
        )
    has_torso = torso in _EMBED
    mixed = has_torso and len(images) < len(spaces.observations)
    default: tuple[int, ...] = {"q": (128, 128), "soft-actor-critic": (256, 256)}.get(network.head, (64, 64))
    if has_torso and network.head != "soft-actor-critic":
        default = (256,) if mixed else ()
    tanh = network.head == "actor-critic" and not has_torso
    shared = (has_torso or network.lstm > 0) if network.head == "actor-critic" else None
    return msgspec.structs.replace(
        network,
        torso=torso,
        hidden=default if network.hidden is None else network.hidden,
        activation=("tanh" if tanh else "relu") if network.activation == "auto" else network.activation,
        embed=(network.embed or _EMBED[torso]) if has_torso else 0,
        shared=shared if network.shared is None else network.shared,
    )


def inputs(network: Network, spaces: Spaces) -> Inputs:
    """The inputs of a resolved network."""
    vectors: list[VectorInput] = []
    images: list[ImageInput] = []
    for key, array in sorted(spaces.observations.items()):
        picture = image(key, array) if network.torso in _EMBED else None
        if picture is not None:
            images.append(picture)
        else:
            real = array.dtype.startswith("float")
            vectors.append(VectorInput(key, math.prod(array.shape), 1.0 if real else _scale(array), real))
    return Inputs(tuple(vectors), tuple(images))


def image(key: str, array: Array) -> ImageInput | None:
    """An observation of bytes, [C, H, W], [H, W, C] or [H, W], as an image; None if it is not one."""
    if array.dtype != "uint8" or len(array.shape) not in (2, 3):
        return None
    scale = _scale(array)
    if len(array.shape) == 2:
        return ImageInput(key, 1, *array.shape, last=False, scale=scale)
    first, middle, last = array.shape
    # Channels are the shorter axis. If both ends are equal, PyTorch's order wins.
    if first <= last:
        candidate = ImageInput(key, first, middle, last, last=False, scale=scale)
    else:
        candidate = ImageInput(key, last, first, middle, last=True, scale=scale)
    return candidate if candidate.channels <= _MAX_CHANNELS else None


def state_size(network: Network) -> int:
    """Size of a recurrent policy's state: hidden and cell."""
    return 2 * network.lstm


def _scale(array: Array) -> float:
    if array.dtype != "uint8":
        return 1.0
    return 1.0 / array.high if array.high else 1.0 / 255.0


def _fits_nature(array: Array) -> bool:
    candidate = image("", array)
    return candidate is not None and min(candidate.height, candidate.width) >= SMALLEST_NATURE


def _shapes(spaces: Spaces) -> str:
    return ", ".join(
        f"{key} is {array.dtype}{list(array.shape)}" for key, array in spaces.observations.items()
    )


def _check(network: Network, spaces: Spaces) -> None:
    if network.head == "q" and not isinstance(spaces.action, Discrete):
        raise Misconfigured(
            "DQN needs discrete actions, but this environment has continuous ones",
            fix="use sac, ppo or impala",
        )
    if network.head == "soft-actor-critic" and not isinstance(spaces.action, Continuous):
        raise Misconfigured(
            "SAC needs continuous actions, but this environment has discrete ones",
            fix="use dqn, ppo or impala",
        )
    if network.head == "soft-actor-critic" and network.lstm:
        raise Misconfigured(f"SAC does not support an LSTM, but lstm is {network.lstm}", fix="use lstm=0")
    if network.shared is not None and network.head != "actor-critic":
        raise Misconfigured(f'"shared" does not apply to the head {network.head!r}', fix="remove it")
    if network.shared is False and network.lstm:
        raise Misconfigured("policy and value always share an LSTM", fix="remove shared=False")
    if network.dueling and network.head != "q":
        raise Misconfigured(f'"dueling" applies to the head "q", not to {network.head!r}', fix="remove it")
    if min(network.hidden or (1,)) < 1 or network.lstm < 0 or (network.embed or 1) < 1:
        raise Misconfigured(
            f"every layer needs at least 1 unit, not hidden={network.hidden}, lstm={network.lstm}, embed={network.embed}",
            fix="use positive numbers",
        )
