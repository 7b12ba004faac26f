"""Which image each role of a training runs in: PyTorch makes an image large, and most roles do not need it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.metadata import version

from callsheet import contract
from callsheet.errors import UserError
from callsheet.rl.nets.network import Network
from callsheet.rl.settings import Training

_REGISTRY = re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?(:\d+)?(/[a-z0-9]([a-z0-9._-]*[a-z0-9])?)*")
_WITHOUT_PICTURES = ("classic", "mujoco")
"""Families of environments whose observations are a few numbers."""


@dataclass(frozen=True, kw_only=True)
class Images:
    """Images that you ask for. Without any, as on a laptop, roles have none."""

    learner: str = ""
    """For the learner, and for every role without another."""
    actors: str = ""
    """For actors, replay and evaluator."""
    registry: str = ""
    """Where our own images are, for roles that the two above leave open; it may have a path."""


def choose_images(wanted: Images, training: Training, network: Network, gpus: int) -> dict[str, str]:
    """The image of each role; empty if it is the learner's."""
    slim, learner = _ours(wanted.registry) if wanted.registry else ("", "")
    rest = wanted.actors or ("" if wanted.learner else slim)
    torch = _plays_with_torch(training, network)
    own = torch and training.inference == "local"
    return {
        "learner": wanted.learner or learner,
        "replay": rest,
        "actor": wanted.actors if own else rest,
        "evaluator": wanted.actors if torch else rest,
        "policy": "" if torch or gpus or wanted.learner else slim,
    }


def _ours(registry: str) -> tuple[str, str]:
    """Our images of this version, the slim one and the learner's."""
    place = registry.rstrip("/")
    if not _REGISTRY.fullmatch(place):
        raise UserError(
            f"{registry!r} is not the name of a registry",
            fix="write its host, and perhaps a path: registry.example.com/team",
        )
    tag = version("callsheet").replace("+", "-")
    return f"{place}/{contract.IMAGE}:{tag}", f"{place}/{contract.LEARNER_IMAGE}:{tag}"


def _plays_with_torch(training: Training, network: Network) -> bool:
    """Whether a policy needs PyTorch to play: NumPy has no memory and no convolutions.

    What an environment shows is known once it is made, and it need not even be installed here: it may be pictures.
    """
    if network.lstm:
        return True
    if network.torso != "auto":
        return network.torso != "mlp"
    return training.family not in _WITHOUT_PICTURES
