"""Loopback addresses for a run's replicas, reserved so that no two runs of the machine share one.

Linux routes all of 127.0.0.0/8 to the machine itself, so every replica can have an address of its own and every port
on it. A run reserves whole blocks of 254 addresses by binding an abstract Unix socket named after each block: the
system gives a name to one process only, across users, and takes it back when that process ends, however it ends.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Mapping, Sequence

from callsheet.backends.local.supervisor.gpus import reserve
from callsheet.errors import RetryError
from callsheet.spec.experiment import Experiment

BLOCK = 254
SPARE = 16
"""Addresses beyond a role's largest size, for members that join by hand."""
_BLOCKS = 254 * 256
"""127.1.0 to 127.254.255: 127.0 is left to the machine's own services."""


def offsets(experiment: Experiment) -> dict[str, int]:
    """Where each role's addresses begin."""
    places: dict[str, int] = {}
    total = 0
    for role in experiment.spec.roles:
        places[role.name] = total
        total += role.most + SPARE
    return places


def blocks_needed(experiment: Experiment) -> int:
    """How many blocks hold all replicas that the experiment may ever have."""
    total = sum(role.most + SPARE for role in experiment.spec.roles)
    return -(-total // BLOCK)


def reserve_blocks(count: int) -> tuple[list[str], list[socket.socket]]:
    """Reserve blocks: their first three numbers (``127.8.1``) and the sockets that hold them."""
    names: list[str] = []
    sockets: list[socket.socket] = []
    start = random.randrange(_BLOCKS)  # noqa: S311 - spreads runs out, keeps no secret
    for step in range(_BLOCKS):
        number = (start + step) % _BLOCKS
        name = f"127.{1 + number // 256}.{number % 256}"
        holder = reserve(f"net/{name}")
        if holder:
            names.append(name)
            sockets.append(holder)
            if len(names) == count:
                return names, sockets
    for holder in sockets:
        holder.close()
    raise RetryError("all loopback addresses are in use by other runs", fix="stop some: callsheet ps")


def address(blocks: Sequence[str], places: Mapping[str, int], role: str, index: int) -> str:
    """The address of one replica."""
    block, rest = divmod(places[role] + index, BLOCK)
    return f"{blocks[block]}.{rest + 1}"
