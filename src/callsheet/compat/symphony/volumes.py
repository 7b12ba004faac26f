"""Symphony's volumes, and the calls that mount them into one process or into all of a group."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import Any

from callsheet.compat.symphony.base import no_counterpart


class KubeVolume:
    """A named volume; `source` is its definition in Kubernetes' shape."""

    def __init__(self, name: str, source: dict[str, Any]) -> None:
        self.name = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
        self.source = source

    def pod_spec(self) -> dict[str, Any]:
        """As it stands under ``spec.volumes`` of a pod."""
        return {"name": self.name, **self.source}


class KubeNFSVolume(KubeVolume):
    """A folder of an NFS server."""

    def __init__(self, name: str, server: str, path: str) -> None:
        super().__init__(name, {"nfs": {"server": server, "path": path}})


class KubeHostPathVolume(KubeVolume):
    """A path of the machine."""

    def __init__(self, name: str, path: str, hostpath_type: str = "") -> None:
        kind = {"type": hostpath_type} if hostpath_type else {}
        super().__init__(name, {"hostPath": {"path": path, **kind}})


class KubeEmptyDirVolume(KubeVolume):
    """A folder that lives as long as the pod."""

    def __init__(self, name: str, memory: bool = False) -> None:
        super().__init__(name, {"emptyDir": {"medium": "Memory"} if memory else {}})


class KubeSecretVolume(KubeVolume):
    """A Secret's keys as files."""

    def __init__(self, name: str, secret_name: str, default_mode: int | None = None) -> None:
        mode = {} if default_mode is None else {"defaultMode": default_mode}
        super().__init__(name, {"secret": {"secretName": secret_name, **mode}})


class Mounts(ABC):
    """The mount calls; subclasses implement `mount_volume`."""

    @abstractmethod
    def mount_volume(self, volume: KubeVolume, mount_path: str) -> None:
        """Mount a volume under a path."""

    def mount_nfs(self, server: str, path: str, mount_path: str, name: str | None = None) -> None:
        """Mount a folder of an NFS server."""
        self.mount_volume(KubeNFSVolume(name or server, server, path), mount_path)

    def mount_secret(
        self,
        secret_name: str,
        mount_path: str,
        defaultMode: int | None = None,  # noqa: N803 - the name in Symphony
        name: str | None = None,
    ) -> None:
        """Mount a Secret's keys as files."""
        self.mount_volume(KubeSecretVolume(name or secret_name, secret_name, defaultMode), mount_path)

    def mount_host_path(
        self, path: str, mount_path: str, hostpath_type: str = "", name: str | None = None
    ) -> None:
        """Mount a path of the machine."""
        self.mount_volume(KubeHostPathVolume(name or path, path, hostpath_type), mount_path)

    def mount_empty_dir(self, name: str, use_memory: bool, mount_path: str) -> None:
        """Mount a folder that lives as long as the pod."""
        self.mount_volume(KubeEmptyDirVolume(name, use_memory), mount_path)

    def mount_shared_memory(self, name: str = "devshm") -> None:
        """Mount memory under /dev/shm, which has only 64 MB on Kubernetes by default."""
        self.mount_volume(KubeEmptyDirVolume(name, True), "/dev/shm")  # noqa: S108 - a mount path, not a file

    def mount_git_repo(
        self, repository: str, revision: str, mount_path: str, name: str | None = None
    ) -> None:
        """Not supported: Kubernetes has switched its git volumes off."""
        raise no_counterpart(
            f"mount_git_repo({repository!r})",
            "Kubernetes no longer has git volumes",
            "put the code into the image, or clone it in the command",
        )
