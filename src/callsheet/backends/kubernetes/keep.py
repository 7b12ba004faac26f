"""Keeps what an attached client saw, under its own `runs/`: a pod's log goes with the pod.

The layout is that of a run on a laptop, so that the same eyes find it.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from callsheet.backends.base import LogLine, LogQuery, Status


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

    def keep(self, lines: list[LogLine]) -> None:
        """Append lines of one container."""
        line = lines[0]
        path = self.folder / "logs" / line.role / str(line.index) / f"{line.container}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8", errors="surrogateescape") as file:
            file.writelines(f"{line.text}\n" for line in lines)

    def end(self, status: Status) -> None:
        """Write down how it ended."""
        if self.exists:
            (self.folder / "status.json").write_text(json.dumps(status.to_data(), indent=2), encoding="utf-8")

    def lines(self, role: str, index: int, query: LogQuery) -> Iterator[LogLine]:
        """The kept lines of a replica."""
        pattern = re.compile(query.grep) if query.grep else None
        for path in sorted((self.folder / "logs" / role / str(index)).glob("*.log")):
            wanted = {query.container, *(t.container for t in query.targets if t.matches(role, index))}
            if wanted - {None} and path.stem not in wanted:
                continue
            with path.open(encoding="utf-8", errors="replace") as file:
                texts = (text.rstrip("\n") for text in file)
                for text in deque(texts, maxlen=query.tail) if query.tail is not None else texts:
                    if pattern is None or pattern.search(text):
                        yield LogLine(role, index, path.stem, text)
