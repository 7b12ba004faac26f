"""The local backend's addresses and paths: where a replica listens, and where its files, volumes and results lie."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from callsheet.backends.local.loopback import BLOCK, SPARE, address, offsets
from callsheet.backends.local.supervisor.files import Layout
from callsheet.backends.local.supervisor.references import folder as reference_folder
from callsheet.spec.experiment import Experiment, Role
from callsheet.spec.kubernetes import Volume, VolumeMount

FIRST_SHARED_PORT = 20_000


@dataclass(frozen=True)
class LocalAddressing:
    """One loopback address per replica; paths inside the run's folder."""

    experiment: Experiment
    layout: Layout
    workdir: str
    storage: str
    blocks: Sequence[str]
    avoid: frozenset[int]

    @property
    def addresses(self) -> str:
        return self.layout.addresses

    @property
    def keys(self) -> str:
        return self.layout.keys

    @property
    def env(self) -> Mapping[str, str]:
        return {}

    @property
    def template(self) -> None:
        return None

    @cached_property
    def capacity(self) -> Mapping[str, int]:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return {"cpu": os.cpu_count() or 1, "memory": memory}

    @cached_property
    def _offsets(self) -> Mapping[str, int]:
        return offsets(self.experiment)

    def host(self, role: str, index: int) -> str:
        return address(self.blocks, self._offsets, role, index)

    def listen(self, role: str, index: int) -> str:
        return self.host(role, index)

    def port(self, endpoint: str, port: int, index: int) -> int:
        return port

    def any(self, endpoint: str, port: int) -> str:
        return ""  # no address stands for several; the planner gives each replica one of them

    def file(self, name: str) -> str:
        return os.path.join(self.layout.files, name)

    def mount(self, volume: Volume, mount: VolumeMount, role: str, index: int) -> str:
        if volume.host_path:
            base = volume.host_path.path
        elif volume.secret:
            base = reference_folder(self.workdir, "secret", volume.secret.secret_name)
        elif volume.config_map:
            base = reference_folder(self.workdir, "configmap", volume.config_map.name)
        elif volume.persistent_volume_claim:
            base = os.path.join(
                self.workdir, ".callsheet", "claims", volume.persistent_volume_claim.claim_name
            )
        else:
            base = os.path.join(self.layout.volumes, role, str(index), volume.name)
        return os.path.join(base, mount.sub_path) if mount.sub_path else base

    def field(self, path: str, experiment: str, role: Role, index: int) -> str:
        name, bracket, key = path.partition("[")
        if bracket:
            values = {"metadata.labels": role.labels, "metadata.annotations": role.annotations}.get(name, {})
            return values.get(key.rstrip("]").strip("'\""), "")
        return {
            "metadata.name": f"{experiment}-{role.name}-{index}",
            "metadata.namespace": self.experiment.metadata.namespace or "default",
            "status.podIP": self.host(role.name, index),
            "status.hostIP": "127.0.0.1",
            "spec.nodeName": socket.gethostname(),
            "spec.serviceAccountName": role.service_account_name or "default",
        }.get(path, "")


@dataclass(frozen=True)
class SharedHostAddressing(LocalAddressing):
    """For systems with one loopback address: all replicas on 127.0.0.1, each with ports of its own."""

    first: int = FIRST_SHARED_PORT

    @cached_property
    def _slots(self) -> Mapping[str, int]:
        """Where each endpoint's ports begin: one port for each replica that may ever bind it."""
        slots: dict[str, int] = {}
        total = 0
        for role in self.experiment.spec.roles:
            for container in role.group:
                for bind in container.bound:
                    slots[bind.name] = total
                    total += role.most + SPARE
        return slots

    def host(self, role: str, index: int) -> str:
        return "127.0.0.1"

    def port(self, endpoint: str, port: int, index: int) -> int:
        return self.first + self._slots[endpoint] + index


def has_loopback_network() -> bool:
    """Whether every address of 127.0.0.0/8 is this machine."""
    return sys.platform == "linux"


def make_addressing(experiment: Experiment, layout: Layout, options: Mapping[str, Any]) -> LocalAddressing:
    """The addressing that a run was started with; `options` is what its launch wrote down."""
    common = {
        "experiment": experiment,
        "layout": layout,
        "workdir": options["workdir"],
        "storage": options["storage"],
        "blocks": options["blocks"],
        "avoid": frozenset(options["avoid"]),
    }
    return (
        LocalAddressing(**common)
        if options["blocks"]
        else SharedHostAddressing(**common, first=options["first_port"])
    )


__all__ = ["BLOCK", "LocalAddressing", "SharedHostAddressing", "has_loopback_network", "make_addressing"]
