"""Who binds what: the endpoints of an experiment with their ports, and the addresses that a peer sees."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from callsheet.plan.addressing import Addressing
from callsheet.spec.experiment import Experiment

FIRST_CHOSEN_PORT = 20_000
CHOSEN_PORTS = 10_000
"""Below the ports that systems hand out to clients (32768 on Linux) and Kubernetes' node ports (30000)."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One endpoint and the replicas that serve it."""

    name: str
    role: str
    container: str
    port: int
    exposed: bool
    addresses: tuple[str, ...]
    """``host:port`` in index order; never empty: a role scaled to nothing keeps the address its first replica
    will have."""
    replicas: int
    """How many replicas serve it now."""

    def seen_from(self, position: int) -> str:
        """The address for the replica at this place of a role. For a role that binds the endpoint itself that is
        its own pod's; for the others the only one, or the one with its place."""
        return self.addresses[position % len(self.addresses)]


def chosen_ports(experiment: Experiment, avoid: frozenset[int]) -> dict[str, int]:
    """A port for every endpoint. Those without one get it from their name, so that it is the same everywhere and
    does not move when another endpoint is added."""
    wanted = [bind for role in experiment.spec.roles for container in role.group for bind in container.bound]
    ports = {bind.name: bind.port for bind in wanted if bind.port is not None}
    taken = set(ports.values()) | avoid
    for name in sorted(bind.name for bind in wanted if bind.port is None):
        start = zlib.crc32(name.encode())
        for step in range(CHOSEN_PORTS):
            port = FIRST_CHOSEN_PORT + (start + step) % CHOSEN_PORTS
            if port not in taken:
                break
        ports[name] = port
        taken.add(port)
    return ports


def endpoints(
    experiment: Experiment, addressing: Addressing, indexes: Mapping[str, Sequence[int]]
) -> dict[str, Endpoint]:
    """Every endpoint of the experiment by name."""
    ports = chosen_ports(experiment, addressing.avoid)
    table: dict[str, Endpoint] = {}
    for role in experiment.spec.roles:
        members = indexes[role.name]
        for container in role.group:
            exposed = {bind.name for bind in container.exposes}
            for name in [bind.name for bind in container.bound]:
                table[name] = Endpoint(
                    name=name,
                    role=role.name,
                    container=container.name,
                    port=ports[name],
                    exposed=name in exposed,
                    addresses=tuple(
                        f"{addressing.host(role.name, i)}:{addressing.port(name, ports[name], i)}"
                        for i in members or (0,)
                    ),
                    replicas=len(members),
                )
    return table
