"""The addresses and paths of a cluster, for `callsheet plan --on kubernetes`: where a replica is found, where its files lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from callsheet.backends.kubernetes import names
from callsheet.backends.kubernetes.render.objects import storage_of
from callsheet.spec.experiment import Experiment, Role
from callsheet.spec.kubernetes import Volume, VolumeMount


@dataclass(frozen=True)
class KubernetesAddressing:
    """Stable host names; the paths inside a pod."""

    experiment: Experiment
    run: str

    @property
    def workdir(self) -> str:
        return names.WORKDIR

    @property
    def storage(self) -> str:
        return storage_of(self.experiment, self.run)

    @property
    def addresses(self) -> str:
        return names.ADDRESSES

    @property
    def keys(self) -> str:
        return names.KEYS

    @property
    def avoid(self) -> frozenset[int]:
        return frozenset()

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
