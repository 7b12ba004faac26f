"""Keeps what an attached client saw, under its own `runs/`: a pod's log goes with the pod.

The layout is that of a run on a laptop, so that the same eyes find it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from callsheet.backends.base import LogQuery, Status
from callsheet.backends.pieces import LogPiece, last, whole

_BLOCK = 1 << 18


class KeptRun:
    """The folder of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @staticmethod
    def of(experiment: str, run: str) -> KeptRun:
        """The run's folder below the current one."""
        return KeptRun(Path.cwd() / "runs" / experiment / run)

    @property
    def exists(self) -> bool:
        """Whether anything was kept."""
        return self.folder.is_dir()

    def begin(self, experiment: str) -> None:
        """Write down the experiment as it is run."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "experiment.yaml").write_text(experiment, encoding="utf-8")

    def forget_logs(self) -> None:
        """Begin the logs anew: they are about to be read from their start."""
        for path in self.folder.glob("logs/*/*/*.log"):
            path.unlink()

    def keep(self, piece: LogPiece) -> None:
        """Append lines of one container."""
        path = self.folder / "logs" / piece.role / str(piece.index) / f"{piece.container}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8", errors="surrogateescape", newline="\n") as file:
            file.write(piece.text)

    def end(self, status: Status) -> None:
        """Write down how it ended."""
        if self.exists:
            (self.folder / "status.json").write_text(json.dumps(status.to_data(), indent=2), encoding="utf-8")

    def pieces(self, role: str, index: int, query: LogQuery) -> Iterator[LogPiece]:
        """The kept lines of a replica."""
        for path in sorted((self.folder / "logs" / role / str(index)).glob("*.log")):
            wanted = {query.container, *(t.container for t in query.targets if t.matches(role, index))}
            if wanted - {None} and path.stem not in wanted:
                continue
            with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
                texts = whole(iter(lambda: file.read(_BLOCK), ""), "\n")
                found = (LogPiece(role, index, path.stem, text) for text in texts)
                yield from last(found, query.tail)
