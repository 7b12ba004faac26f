"""What the tool remembers about a cluster between two commands, in one place.

Whether a unit runs is asked of the kernel each time, never remembered: what is written down here stays true after a crash.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tools.cluster.errors import ClusterError

ROOT = Path("/var/lib/callsheet-cluster")
LOCKS = Path("/run/callsheet-cluster")
MAX_NODES = 100
CONTROL = "control"


@dataclass
class Cluster:
    """A cluster's name, its number (which decides its addresses) and what was asked of it."""

    name: str
    number: int
    nodes: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    gpus: dict[str, int] = field(default_factory=dict)
    complete: bool = False
    """Whether `up` has come to its end: a cluster that was interrupted before is not to be trusted."""

    @property
    def folder(self) -> Path:
        return ROOT / self.name

    @property
    def api_host(self) -> str:
        return self.address(1)

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def ready_file(self) -> Path:
        """There once the API server answers: programs that would only fail before wait for it."""
        return self.folder / "api-ready"

    def address(self, last: int) -> str:
        return f"10.200.{self.number}.{last}"

    def node_address(self, node: str) -> str:
        return self.address(10 + node_number(node))

    def unit_folder(self, unit: str) -> Path:
        return self.folder / unit

    def save(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        fresh = self.folder / "cluster.json.new"
        fresh.write_text(json.dumps(asdict(self), indent=1))
        os.replace(fresh, self.folder / "cluster.json")


def node_name(number: int) -> str:
    return f"node-{number}"


def node_number(node: str) -> int:
    return int(node.removeprefix("node-"))


def check_name(name: str) -> str:
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?", name):
        raise ClusterError(
            f"{name!r} cannot be the name of a cluster",
            "use up to 32 lower-case letters, digits and dashes, with no dash at either end",
        )
    return name


def find(name: str) -> Cluster | None:
    try:
        return Cluster(**json.loads((ROOT / name / "cluster.json").read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def get(name: str) -> Cluster:
    cluster = find(name)
    if cluster is None:
        others = ", ".join(known()) or "none"
        raise ClusterError(
            f"there is no cluster {name!r} (there: {others})", "start one with `python -m tools.cluster up`"
        )
    return cluster


def forget(name: str) -> None:
    shutil.rmtree(ROOT / name, ignore_errors=True)


def known() -> list[str]:
    return sorted(path.parent.name for path in ROOT.glob("*/cluster.json"))


@contextlib.contextmanager
def lock(name: str, seconds: float = 300) -> Iterator[None]:
    """One command at a time works on a cluster; the others wait for it."""
    LOCKS.mkdir(parents=True, exist_ok=True)
    with (LOCKS / f"{name}.lock").open("w") as file:
        end = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise ClusterError(
                        f"another command has worked on cluster {name!r} for {seconds:g} s"
                    ) from None
                time.sleep(0.1)
        yield
