"""Symphony's docker-compose cluster: its processes run on this machine, without their images."""

from __future__ import annotations

from typing import ClassVar

from callsheet.compat.symphony.engine import Cluster
from callsheet.compat.symphony.localspec import (
    DockerExperimentSpec,
    DockerProcessGroupSpec,
    DockerProcessSpec,
)
from callsheet.compat.symphony.spec import ExperimentSpec

__all__ = ["DockerCluster", "DockerExperimentSpec", "DockerProcessGroupSpec", "DockerProcessSpec"]


class DockerCluster(Cluster):
    """Experiments on this machine."""

    _ExperimentClass: ClassVar[type[ExperimentSpec]] = DockerExperimentSpec
