"""What a policy is, as data: a file can hold it, an actor and a learner build the same one from it.

Every policy has the same plan. Each image goes through a torso of its own; what comes out is joined with all other
observations (in the order of their names), goes through the hidden layers, then through the LSTM if there is one, and
ends in the heads.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import msgspec

from callsheet.errors import Misconfigured
from callsheet.rl.spaces import Array, Continuous, Discrete, Spaces

Head = Literal["actor-critic", "q", "soft-actor-critic"]

SMALLEST_NATURE = 36
"""Pixels: below this nothing is left after the three convolutions of the Nature torso."""
_MOST_CHANNELS = 32
_EMBED = {"nature": 512, "resnet": 256}


class Network(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The shape of a policy. What is left to "auto" or null is chosen by `resolve`, which knows the environment."""

    head: Head = "actor-critic"
    """What it computes: action probabilities and a value, the value of each action, or a squashed Gaussian with two
    critics (SAC)."""
    torso: Literal["auto", "mlp", "nature", "resnet"] = "auto"
    """What images go through. "auto": the Nature CNN for images of bytes; "mlp" takes them as long vectors."""
    hidden: tuple[int, ...] | None = None
    """Widths of the layers behind the torso. By itself: (64, 64), for images none, (128, 128) for "q", (256, 256) for
    "soft-actor-critic", (256,) where images come with other observations."""
    activation: Literal["auto", "tanh", "relu"] = "auto"
    """Behind each hidden layer. By itself: tanh for "actor-critic" without images, else relu."""
    embed: int | None = None
    """Width of the layer that ends an image's torso. By itself: 512 for Nature, 256 for the ResNet."""
    lstm: int = 0
    """Units of the LSTM; 0 is none."""
    shared: bool | None = None
    """Whether policy and value share all but their heads ("actor-critic" only). By itself: with images or an LSTM."""
    dueling: bool = False
    """Whether "q" is the sum of a value and of advantages."""
    log_std: float = 0.0
    """Where the logarithm of the Gaussian's deviation starts, for continuous actions of "actor-critic"."""


class Vector(NamedTuple):
    """An observation that joins the others as it is, flattened."""

    key: str
    size: int
    scale: float
    """What its numbers are multiplied by: bytes are brought to 0..1."""
    normal: bool
    """Whether running statistics apply to it: to floating-point numbers."""


class Image(NamedTuple):
    """An observation with a torso of its own."""

    key: str
    channels: int
    height: int
    width: int
    last: bool
    """Whether channels are the last axis."""
    scale: float


class Inputs(NamedTuple):
    """The observations, in the order in which a policy takes them."""

    vectors: tuple[Vector, ...]
    images: tuple[Image, ...]

    @property
    def width(self) -> int:
        """Numbers in all vectors."""
        return sum(vector.size for vector in self.vectors)


def resolve(network: Network, spaces: Spaces) -> Network:
    """The same network with nothing left open; refuses what cannot work in this environment."""
    _check(network, spaces)
    images = [array for array in spaces.observations.values() if image("", array) is not None]
    torso = network.torso
    if torso == "auto":
        large = images and all(_fits_nature(array) for array in images)
        torso = "nature" if large else "mlp"
    if torso in _EMBED and not images:
        raise Misconfigured(
            f"the torso {torso!r} is for images, and no observation is one: {_shapes(spaces)}",
            fix='use "mlp" or "auto"; an image has three axes (or two) of unsigned bytes',
        )
    if torso == "nature" and not all(_fits_nature(array) for array in images):
        raise Misconfigured(
            f'the torso "nature" needs images of {SMALLEST_NATURE}x{SMALLEST_NATURE} at least: {_shapes(spaces)}',
            fix='use "resnet" or "mlp"',
        )
    seen = torso in _EMBED
    mixed = seen and len(images) < len(spaces.observations)
    usual: tuple[int, ...] = {"q": (128, 128), "soft-actor-critic": (256, 256)}.get(network.head, (64, 64))
    if seen and network.head != "soft-actor-critic":
        usual = (256,) if mixed else ()
    calm = network.head == "actor-critic" and not seen
    shared = (seen or network.lstm > 0) if network.head == "actor-critic" else None
    return msgspec.structs.replace(
        network,
        torso=torso,
        hidden=usual if network.hidden is None else network.hidden,
        activation=("tanh" if calm else "relu") if network.activation == "auto" else network.activation,
        embed=(network.embed or _EMBED[torso]) if seen else 0,
        shared=shared if network.shared is None else network.shared,
    )


def inputs(network: Network, spaces: Spaces) -> Inputs:
    """What a resolved network takes."""
    vectors: list[Vector] = []
    images: list[Image] = []
    for key, array in sorted(spaces.observations.items()):
        picture = image(key, array) if network.torso in _EMBED else None
        if picture is not None:
            images.append(picture)
        else:
            real = array.dtype.startswith("float")
            vectors.append(Vector(key, math.prod(array.shape), 1.0 if real else _scale(array), real))
    return Inputs(tuple(vectors), tuple(images))


def image(key: str, array: Array) -> Image | None:
    """An observation as an image, or None if it is not one: [C, H, W], [H, W, C] or [H, W] of bytes."""
    if array.dtype != "uint8" or len(array.shape) not in (2, 3):
        return None
    scale = _scale(array)
    if len(array.shape) == 2:
        return Image(key, 1, *array.shape, last=False, scale=scale)
    first, middle, last = array.shape
    # Channels are the short axis. Where both ends are alike, PyTorch's order wins.
    if first <= last:
        found = Image(key, first, middle, last, last=False, scale=scale)
    else:
        found = Image(key, last, first, middle, last=True, scale=scale)
    return found if found.channels <= _MOST_CHANNELS else None


def state_size(network: Network) -> int:
    """Numbers that a recurrent policy carries from step to step: hidden state and cell."""
    return 2 * network.lstm


def _scale(array: Array) -> float:
    if array.dtype != "uint8":
        return 1.0
    return 1.0 / array.high if array.high else 1.0 / 255.0


def _fits_nature(array: Array) -> bool:
    found = image("", array)
    return found is not None and min(found.height, found.width) >= SMALLEST_NATURE


def _shapes(spaces: Spaces) -> str:
    return ", ".join(
        f"{key} is {array.dtype}{list(array.shape)}" for key, array in spaces.observations.items()
    )


def _check(network: Network, spaces: Spaces) -> None:
    if network.head == "q" and not isinstance(spaces.action, Discrete):
        raise Misconfigured(
            "values of actions (DQN) need a finite number of actions, and these are continuous",
            fix="use sac, ppo or impala",
        )
    if network.head == "soft-actor-critic" and not isinstance(spaces.action, Continuous):
        raise Misconfigured(
            "SAC needs continuous actions, and this environment has a finite number of them",
            fix="use dqn, ppo or impala",
        )
    if network.head == "soft-actor-critic" and network.lstm:
        raise Misconfigured(f"SAC has no LSTM, but {network.lstm} units are asked for", fix="use lstm=0")
    if network.shared is not None and network.head != "actor-critic":
        raise Misconfigured(f'"shared" says nothing about the head {network.head!r}', fix="leave it out")
    if network.shared is False and network.lstm:
        raise Misconfigured("an LSTM is shared by policy and value", fix="leave out shared=False")
    if network.dueling and network.head != "q":
        raise Misconfigured(
            f'"dueling" is for values of actions, not for the head {network.head!r}', fix="leave it out"
        )
    if min(network.hidden or (1,)) < 1 or network.lstm < 0 or (network.embed or 1) < 1:
        raise Misconfigured(
            f"layers have 1 unit or more, not hidden={network.hidden}, lstm={network.lstm}, embed={network.embed}",
            fix="use positive numbers",
        )
