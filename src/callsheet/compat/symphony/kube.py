"""Symphony's Kubernetes cluster."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn

from callsheet.compat.symphony.base import no_counterpart
from callsheet.compat.symphony.engine import Cluster
from callsheet.compat.symphony.kubespec import KubeExperimentSpec, KubeProcessGroupSpec, KubeProcessSpec
from callsheet.compat.symphony.spec import ExperimentSpec
from callsheet.compat.symphony.volumes import (
    KubeEmptyDirVolume,
    KubeHostPathVolume,
    KubeNFSVolume,
    KubeSecretVolume,
    KubeVolume,
)

__all__ = [
    "GKEDispatcher",
    "KubeCluster",
    "KubeEmptyDirVolume",
    "KubeExperimentSpec",
    "KubeHostPathVolume",
    "KubeNFSVolume",
    "KubeProcessGroupSpec",
    "KubeProcessSpec",
    "KubeSecretVolume",
    "KubeVolume",
]


class KubeCluster(Cluster):
    """Experiments on Kubernetes; with CALLSHEET_ON=local in the environment, on this machine."""

    runs_on: ClassVar[str] = "kubernetes"
    _ExperimentClass: ClassVar[type[ExperimentSpec]] = KubeExperimentSpec

    def query_resources(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not supported: kubectl does it."""
        raise self._kubectl("query_resources", "kubectl get RESOURCE -o json")

    def query_jsonpath(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not supported: kubectl does it."""
        raise self._kubectl("query_jsonpath", "kubectl get RESOURCE -o jsonpath=...")

    def config_view(self) -> NoReturn:
        """Not supported: kubectl does it."""
        raise self._kubectl("config_view", "kubectl config view")

    def current_context(self) -> NoReturn:
        """Not supported: kubectl does it."""
        raise self._kubectl("current_context", "kubectl config current-context")

    def _kubectl(self, call: str, command: str) -> Exception:
        return no_counterpart(
            call,
            "it queries the cluster, not the experiment",
            f"run {command}; describe_experiment describes processes",
        )


class GKEDispatcher:
    """Not supported: use selectors, tolerations and resources for placement."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise no_counterpart(
            "GKEDispatcher",
            "it reads a cluster's Terraform description",
            "write node_selector, add_toleration and resource_request on the process or group",
        )
