"""The addresses and paths of a cluster, and how its pod templates speak of what differs between replicas.

A pod template is the same for all replicas of a role and must not change when a role is scaled. So what differs by
replica comes from the pod's own fields, and what scaling changes from the run's ConfigMap.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from callsheet import contract
from callsheet.backends.kubernetes import names
from callsheet.plan.model import EnvRef
from callsheet.spec.experiment import Experiment, Role
from callsheet.spec.kubernetes import Volume, VolumeMount

_DOLLARS = re.compile(r"\$+(?=\(|\Z)|\${2,}")
"""Dollars that Kubernetes would take for an expression or for an escaped dollar, or that a placeholder may follow."""


@dataclass(frozen=True)
class KubernetesAddressing:
    """Stable host names; the paths inside a pod."""

    experiment: Experiment
    run: str
    workdir: str = names.WORKDIR
    addresses: str = names.ADDRESSES
    keys: str = names.KEYS
    avoid: frozenset[int] = frozenset()

    @property
    def storage(self) -> str:
        storage = self.experiment.spec.storage
        if not storage:
            return ""
        base = f"file://{names.STORAGE}" if urlsplit(storage).scheme == "pvc" else storage.rstrip("/")
        return f"{base}/{self.experiment.name}/{self.run}"

    @property
    def env(self) -> Mapping[str, str]:
        return {"HOME": "/tmp"}  # noqa: S108 - the one place that is writable by default

    @property
    def template(self) -> PodTemplateSyntax:
        return PodTemplateSyntax(self.experiment.name)

    @property
    def capacity(self) -> Mapping[str, int]:
        return {}  # the node decides, and none is chosen yet

    def host(self, role: str, index: int) -> str:
        return names.host(self.experiment.name, role, index)

    def listen(self, role: str, index: int) -> str:
        return "0.0.0.0"  # noqa: S104 - in a pod, behind its network policy

    def port(self, endpoint: str, port: int, index: int) -> int:
        return port

    def any(self, endpoint: str, port: int) -> str:
        return f"{names.service(self.experiment.name, endpoint)}:{port}"

    def file(self, name: str) -> str:
        return f"{names.FILES}/{name}"

    def mount(self, volume: Volume, mount: VolumeMount, role: str, index: int) -> str:
        return mount.mount_path

    def field(self, path: str, experiment: str, role: Role, index: int) -> str:
        return f"<{path}>"  # known to the pod alone


@dataclass(frozen=True)
class PodTemplateSyntax:
    """``$(NAME)`` refers to a variable, and a doubled dollar is a dollar."""

    experiment: str

    def source(self, variable: str, role: Role) -> EnvRef | None:
        owner = names.Owner.of(role)
        if field := {contract.INDEX: owner.index, contract.ATTEMPT: owner.failures}.get(variable):
            return EnvRef(variable, "field", key=field)
        if variable == contract.REPLICAS:
            return self._from_config_map(variable, names.replicas_key(role.name))
        if variable in (contract.RUN, contract.STORAGE) or variable.endswith(f"_{contract.ENDPOINT_ALL}"):
            return self._from_config_map(variable, variable)
        return None

    def _from_config_map(self, variable: str, key: str) -> EnvRef:
        return EnvRef(variable, "configmap", names.config_map(self.experiment), key)

    def host(self, role: str) -> str:
        return names.host(self.experiment, role, self.reference(contract.INDEX))

    def reference(self, variable: str) -> str:
        return f"$({variable})"

    def literal(self, text: str) -> str:
        return _DOLLARS.sub(r"\g<0>\g<0>", text)
