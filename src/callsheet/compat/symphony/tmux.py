"""Symphony's tmux cluster: supervised processes instead of windows, and `callsheet logs -f` instead of attaching.

As in Symphony, a process that has ended is not restarted.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from callsheet.compat.symphony.base import no_counterpart
from callsheet.compat.symphony.engine import Cluster
from callsheet.compat.symphony.spec import ExperimentSpec, LocalProcessSpec, ProcessGroupSpec, ProcessSpec

__all__ = ["TmuxCluster", "TmuxExperimentSpec", "TmuxProcessGroupSpec", "TmuxProcessSpec"]


class TmuxProcessSpec(LocalProcessSpec):
    """Shell commands, run one after the other."""

    restart: ClassVar[str | None] = "Never"

    def __init__(
        self, name: str, cmds: str | Sequence[str] | None = None, start_dir: str | None = None
    ) -> None:
        super().__init__(name)
        self.cmds = _lines(cmds)
        self.start_dir = start_dir
        self.preamble_cmds: list[str] = []

    def command(self) -> list[str]:
        folder = [f"cd {shlex.quote(os.path.expanduser(self.start_dir))} || exit"] if self.start_dir else []
        return ["bash", "-c", "\n".join([*folder, *self.preamble_cmds, *self.cmds])]

    def dump_dict(self) -> dict[str, Any]:
        return super().dump_dict() | {"cmds": list(self.cmds), "start_dir": self.start_dir}

    def _load_dict(self, di: dict[str, Any]) -> None:
        super()._load_dict(di)
        self.cmds, self.start_dir = list(di["cmds"]), di["start_dir"]


class TmuxProcessGroupSpec(ProcessGroupSpec):
    """A group of them."""

    _ProcessClass: ClassVar[type[ProcessSpec]] = TmuxProcessSpec


class TmuxExperimentSpec(ExperimentSpec):
    """An experiment of tmux windows."""

    _ProcessClass: ClassVar[type[ProcessSpec]] = TmuxProcessSpec
    _ProcessGroupClass: ClassVar[type[ProcessGroupSpec]] = TmuxProcessGroupSpec

    def __init__(
        self,
        name: str,
        start_dir: str | None = None,
        preamble_cmds: str | Sequence[str] | None = None,
        port_range: Iterable[int] | None = None,
    ) -> None:
        super().__init__(name, port_range)
        self.start_dir = os.path.abspath(os.path.expanduser(start_dir)) if start_dir else None
        self.set_preamble_cmds(preamble_cmds)

    def set_preamble_cmds(self, preamble_cmds: str | Sequence[str] | None) -> None:
        """Shell commands that every process runs first."""
        self.preamble_cmds = _lines(preamble_cmds)

    def to_callsheet(self) -> Any:
        for process in self.list_all_processes():
            process.preamble_cmds = list(self.preamble_cmds)
        return super().to_callsheet()

    def dump_dict(self) -> dict[str, Any]:
        return super().dump_dict() | {"start_dir": self.start_dir, "preamble_cmds": list(self.preamble_cmds)}

    def _load_dict(self, di: dict[str, Any]) -> None:
        super()._load_dict(di)
        self.start_dir = di["start_dir"]
        self.set_preamble_cmds(di["preamble_cmds"])


class TmuxCluster(Cluster):
    """Experiments on this machine."""

    _ExperimentClass: ClassVar[type[ExperimentSpec]] = TmuxExperimentSpec

    def __init__(self, server_name: str = "default") -> None:
        if server_name != "default":
            raise no_counterpart(
                f"server_name={server_name!r}",
                "there is no tmux server",
                "remove it; run ids distinguish runs",
            )


def _lines(given: str | Sequence[str] | None) -> list[str]:
    return [given] if isinstance(given, str) else [str(line) for line in given or ()]
