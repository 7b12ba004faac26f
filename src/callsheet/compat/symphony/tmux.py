"""Symphony's tmux cluster: supervised processes take the windows' place, `callsheet logs -f` that of attaching."""

from __future__ import annotations

from typing import ClassVar

from callsheet.compat.symphony.base import no_counterpart
from callsheet.compat.symphony.engine import Cluster
from callsheet.compat.symphony.localspec import TmuxExperimentSpec, TmuxProcessGroupSpec, TmuxProcessSpec
from callsheet.compat.symphony.spec import ExperimentSpec

__all__ = ["TmuxCluster", "TmuxExperimentSpec", "TmuxProcessGroupSpec", "TmuxProcessSpec"]


class TmuxCluster(Cluster):
    """Experiments on this machine."""

    _ExperimentClass: ClassVar[type[ExperimentSpec]] = TmuxExperimentSpec

    def __init__(self, server_name: str = "default") -> None:
        if server_name != "default":
            raise no_counterpart(
                f"server_name={server_name!r}",
                "there is no tmux server",
                "remove it; run ids keep runs apart",
            )
