"""Symphony's subprocess cluster: `launch` shows the output and returns when all processes have ended."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any, ClassVar

from callsheet.backends.base import LogQuery, Run
from callsheet.compat.symphony.base import no_counterpart
from callsheet.compat.symphony.engine import Cluster
from callsheet.compat.symphony.spec import ExperimentSpec, LocalProcessSpec, ProcessGroupSpec, ProcessSpec
from callsheet.errors import CallsheetError, UserError

__all__ = ["SubprocCluster", "SubprocExperimentSpec", "SubprocProcessGroupSpec", "SubprocProcessSpec"]


class SubprocProcessSpec(LocalProcessSpec):
    """One command: a string, which is split as in a shell, or a list."""

    restart: ClassVar[str | None] = "Never"

    def __init__(self, name: str, cmd: str | Sequence[str] = ()) -> None:
        super().__init__(name)
        self.cmd = cmd if isinstance(cmd, str) else [str(word) for word in cmd]

    def command(self) -> list[str]:
        words = shlex.split(self.cmd) if isinstance(self.cmd, str) else list(self.cmd)
        if not words:
            raise UserError(f"process {self.name!r} has no command", fix="give cmd='python program.py'")
        return words

    def dump_dict(self) -> dict[str, Any]:
        return super().dump_dict() | {"cmd": self.cmd}

    def _load_dict(self, di: dict[str, Any]) -> None:
        super()._load_dict(di)
        self.cmd = di["cmd"]


class SubprocProcessGroupSpec(ProcessGroupSpec):
    """A group of them."""

    _ProcessClass: ClassVar[type[ProcessSpec]] = SubprocProcessSpec


class SubprocExperimentSpec(ExperimentSpec):
    """An experiment of subprocesses."""

    _ProcessClass: ClassVar[type[ProcessSpec]] = SubprocProcessSpec
    _ProcessGroupClass: ClassVar[type[ProcessGroupSpec]] = SubprocProcessGroupSpec


class SubprocCluster(Cluster):
    """Experiments on this machine that end when `launch` returns."""

    detached: ClassVar[bool] = False
    _ExperimentClass: ClassVar[type[ExperimentSpec]] = SubprocExperimentSpec

    def __init__(
        self, stdout_mode: str = "print", stderr_mode: str = "print", log_dir: str | None = None
    ) -> None:
        if stdout_mode not in ("print", "none", "file"):
            raise UserError(f"stdout_mode={stdout_mode!r} is not supported", fix="choose print, file or none")
        if stderr_mode not in (stdout_mode, "stdout"):
            raise no_counterpart(
                f"stderr_mode={stderr_mode!r} beside stdout_mode={stdout_mode!r}",
                "both streams of a process go to one log",
                f"write stderr_mode={stdout_mode!r}",
            )
        if log_dir is not None:
            raise no_counterpart(
                f"log_dir={log_dir!r}", "logs are in the run's folder", "remove it; launch prints the folder"
            )
        self.shows = stdout_mode == "print"

    def launch(self, spec: ExperimentSpec, force: bool = False, dry_run: bool = False) -> Run | None:
        """Run an experiment to its end. When a process fails, the others are stopped and this raises."""
        run = super().launch(spec, force, dry_run)
        if run is None:
            return None
        try:
            if self.shows:
                for line in run.logs(LogQuery(follow=True)):
                    print(
                        f"{line.role if line.role == line.container else f'{line.role}:{line.container}'}: {line.text}"
                    )
            status = run.wait()
        except BaseException:
            run.stop(reason="the script was interrupted")
            raise
        if status.phase == "Failed":
            raise CallsheetError(
                f"experiment {spec.name!r} failed: {status.reason}", fix=f"see {status.folder}"
            )
        return run
