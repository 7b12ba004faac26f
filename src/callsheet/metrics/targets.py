"""Who exports metrics and where to, as the contract's environment says it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from callsheet import contract
from callsheet.errors import UserError

ENDPOINT = "metrics"
"""A container that binds an endpoint of this name, or one that ends with ``-metrics``, serves its metrics there."""


@dataclass(frozen=True)
class Identity:
    """Which process this is."""

    experiment: str = ""
    run: str = ""
    role: str = "main"
    index: int = 0
    container: str = "main"
    attempt: int = 0

    @property
    def name(self) -> str:
        """One word for it: ``actor-3``, or ``sim-0-policy`` for a container of a group."""
        own = f"{self.role}-{self.index}"
        return own if self.container == self.role else f"{own}-{self.container}"


class Outlets(NamedTuple):
    """Where a process's metrics go; what is empty is not wanted."""

    identity: Identity = Identity()
    address: str = ""
    """``host:port`` to serve them on."""
    folder: str = ""
    """The run's results, a local folder."""
    remote: str = ""
    """The run's results, when they are not a local folder: they are put there by somebody who can."""

    @staticmethod
    def from_env(environ: Mapping[str, str] | None = None) -> Outlets:
        """What the environment of a replica says; nothing is wanted outside an experiment."""
        env = os.environ if environ is None else environ
        role = env.get(contract.ROLE, "main")
        identity = Identity(
            experiment=env.get(contract.EXPERIMENT, ""),
            run=env.get(contract.RUN, ""),
            role=role,
            index=_number(env, contract.INDEX),
            container=env.get(contract.CONTAINER, role),
            attempt=_number(env, contract.ATTEMPT),
        )
        storage = env.get(contract.STORAGE, "")
        folder = _local_folder(storage)
        return Outlets(identity, address=_address(env), folder=folder, remote="" if folder else storage)


def _local_folder(storage: str) -> str:
    """The path of a ``file://`` URL; empty for any other."""
    if not storage.startswith("file://"):
        return ""
    from urllib.parse import unquote, urlsplit  # costs more than the rest of the package

    return unquote(urlsplit(storage).path)


def serves_metrics(endpoint: str) -> bool:
    """Whether metrics are served on an endpoint of this name. A name belongs to one role, so each may have its own."""
    return endpoint == ENDPOINT or endpoint.endswith(f"-{ENDPOINT}")


def _address(env: Mapping[str, str]) -> str:
    """The endpoint's own address. Only the container that binds an endpoint has this variable, so it is ours."""
    plain = contract.endpoint_variable(ENDPOINT, contract.ENDPOINT_BIND)
    ending = plain.removeprefix(contract.PREFIX)
    longer = sorted(
        name for name in env if name.startswith(contract.PREFIX) and name.endswith(f"_{ending}") and env[name]
    )
    return next((env[name] for name in (plain, *longer) if env.get(name)), "")


def _number(env: Mapping[str, str], name: str) -> int:
    text = env.get(name) or "0"
    if not text.isdecimal():
        raise UserError(f"{name} is {text!r}", fix="it is set by Callsheet; leave it as it is")
    return int(text)


def split_address(address: str) -> tuple[str, int]:
    """Host and port of ``host:port``."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise UserError(f"{address!r} is no address to serve metrics on", fix="write host:port")
    return host.strip("[]"), int(port)
