"""Where a process exports its metrics, from its environment variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from callsheet import contract
from callsheet.errors import UserError

ENDPOINT = "metrics"
"""A container serves its metrics on an endpoint that it binds with this name or with the suffix ``-metrics``."""


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
        """``actor-3``, or ``sim-0-policy`` for a container of a group."""
        own = f"{self.role}-{self.index}"
        return own if self.container == self.role else f"{own}-{self.container}"


class ExportTargets(NamedTuple):
    """Where a process's metrics go. Empty ones are not used."""

    identity: Identity = Identity()
    address: str = ""
    """``host:port`` of the Prometheus port."""
    folder: str = ""
    """The run's results, if they are in a local folder."""
    remote: str = ""
    """The run's results, if they are in a remote store; the exporter then needs a sink."""

    @staticmethod
    def from_env(environ: Mapping[str, str] | None = None) -> ExportTargets:
        """From a replica's environment; none outside an experiment."""
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
        return ExportTargets(identity, address=_address(env), folder=folder, remote="" if folder else storage)


def _local_folder(storage: str) -> str:
    """The path of a ``file://`` URL; empty for any other."""
    if not storage.startswith("file://"):
        return ""
    from urllib.parse import unquote, urlsplit  # slow to import

    return unquote(urlsplit(storage).path)


def serves_metrics(endpoint: str) -> bool:
    """Whether metrics are served on an endpoint of this name."""
    return endpoint == ENDPOINT or endpoint.endswith(f"-{ENDPOINT}")


def _address(env: Mapping[str, str]) -> str:
    """The address to serve on. Only the container that binds an endpoint has this variable."""
    plain = contract.endpoint_variable(ENDPOINT, contract.ENDPOINT_BIND)
    ending = plain.removeprefix(contract.PREFIX)
    longer = sorted(
        name for name in env if name.startswith(contract.PREFIX) and name.endswith(f"_{ending}") and env[name]
    )
    return next((env[name] for name in (plain, *longer) if env.get(name)), "")


def _number(env: Mapping[str, str], name: str) -> int:
    text = env.get(name) or "0"
    if not text.isdecimal():
        raise UserError(f"{name} is {text!r}", fix="do not change it; Callsheet sets it")
    return int(text)


def split_address(address: str) -> tuple[str, int]:
    """Host and port of ``host:port``."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise UserError(f"{address!r} is not an address to serve metrics on", fix="use host:port")
    return host.strip("[]"), int(port)
