"""Keeps what an attached client saw, under its own `runs/`: a pod's log goes with the pod.

The layout is that of a run on a laptop, so that the same eyes find it.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterator
from pathlib import Path

from callsheet.backends.base import LogQuery, Status
from callsheet.backends.log_chunks import LogChunk, last_lines, whole_lines
from callsheet.backends.runs_folder import make_runs_folder, runs_folder

_BLOCK = 1 << 18


class KeptRun:
    """The folder of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @staticmethod
    def of(experiment: str, run: str) -> KeptRun:
        """The run's folder below the current one."""
        return KeptRun(runs_folder() / experiment / run)

    @property
    def exists(self) -> bool:
        """Whether anything was kept."""
        return self.folder.is_dir()

    def begin(self, experiment: str) -> None:
        """Write down the experiment as it is run."""
        make_runs_folder(self.folder.parent)
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "experiment.yaml").write_text(experiment, encoding="utf-8")

    def forget_logs(self) -> None:
        """Begin the logs anew: they are about to be read from their start."""
        for path in self.folder.glob("logs/*/*/*.log"):
            path.unlink()

    def keep(self, chunk: LogChunk) -> None:
        """Append lines of one container."""
        path = self.folder / "logs" / chunk.role / str(chunk.index) / f"{chunk.container}.log"
        if not self.exists:
            make_runs_folder(self.folder.parent)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8", errors="surrogateescape", newline="\n") as file:
            file.write(chunk.text)

    def end(self, status: Status) -> None:
        """Write down how it ended."""
        if self.exists:
            (self.folder / "status.json").write_text(json.dumps(status.to_data(), indent=2), encoding="utf-8")

    def chunks(self, query: LogQuery, but: Container[tuple[str, int | None]] = ()) -> Iterator[LogChunk]:
        """The kept lines of every replica `but` these; of those too that are no longer wanted."""
        for path in sorted(self.folder.glob("logs/*/*/*.log"), key=_place):
            role, index, container = _place(path)
            if (role, index) in but or not query.wants(role, index, container):
                continue
            with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
                texts = whole_lines(iter(lambda: file.read(_BLOCK), ""), "\n")
                found = (LogChunk(role, index, container, text) for text in texts)
                yield from last_lines(found, query.tail)


def _place(path: Path) -> tuple[str, int, str]:
    """Role, index and container of a kept log."""
    return path.parent.parent.name, int(path.parent.name), path.stem
