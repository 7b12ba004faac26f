"""A copy of a cluster run's logs and status under `runs/`, written by an attached client: logs vanish with their pods.

The layout is that of a run on a laptop.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterator
from pathlib import Path

from callsheet.backends.base import LogQuery, Status
from callsheet.backends.log_chunks import LogChunk, last_lines, whole_lines
from callsheet.backends.runs_folder import make_runs_folder, runs_folder

_BLOCK = 1 << 18


class LocalCopy:
    """The copy of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @staticmethod
    def of(experiment: str, run: str) -> LocalCopy:
        """The copy in the current folder."""
        return LocalCopy(runs_folder() / experiment / run)

    @property
    def exists(self) -> bool:
        """Whether anything was copied."""
        return self.folder.is_dir()

    def start(self, experiment: str) -> None:
        """Write the experiment as it is run."""
        make_runs_folder(self.folder.parent)
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "experiment.yaml").write_text(experiment, encoding="utf-8")

    def clear_logs(self) -> None:
        """Delete the logs: they are about to be read from their start."""
        for path in self.folder.glob("logs/*/*/*.log"):
            path.unlink()

    def append(self, chunk: LogChunk) -> None:
        """Append lines of one container."""
        path = self.folder / "logs" / chunk.role / str(chunk.index) / f"{chunk.container}.log"
        if not self.exists:
            make_runs_folder(self.folder.parent)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8", errors="surrogateescape", newline="\n") as file:
            file.write(chunk.text)

    def finish(self, status: Status) -> None:
        """Write the final status."""
        if self.exists:
            (self.folder / "status.json").write_text(json.dumps(status.to_data(), indent=2), encoding="utf-8")

    def chunks(self, query: LogQuery, exclude: Container[tuple[str, int | None]] = ()) -> Iterator[LogChunk]:
        """The copied lines of every replica except `exclude`, even those that are no longer wanted."""
        for path in sorted(self.folder.glob("logs/*/*/*.log"), key=_place):
            role, index, container = _place(path)
            if (role, index) in exclude or not query.wants(role, index, container):
                continue
            with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
                texts = whole_lines(iter(lambda: file.read(_BLOCK), ""), "\n")
                chunks = (LogChunk(role, index, container, text) for text in texts)
                yield from last_lines(chunks, query.tail)


def _place(path: Path) -> tuple[str, int, str]:
    """Role, index and container of a copied log."""
    return path.parent.parent.name, int(path.parent.name), path.stem
