"""Starting and finding the machines of a cluster: what is common to a node and to the control plane."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tools.cluster.cgroups import Branch
from tools.cluster.errors import ClusterError
from tools.cluster.state import Cluster

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Part:
    """One program of a unit. `needs`: files that must be there; `after`: parts that run once and must have succeeded."""

    name: str
    argv: list[str]
    needs: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    once: bool = False
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Mount:
    """A mount within a unit: a bind of `source`, or a fresh file system such as tmpfs with some folders in it."""

    kind: str
    target: str
    source: str = ""
    folders: tuple[str, ...] = ()


@dataclass(frozen=True)
class Unit:
    """All that a machine of the cluster is made of."""

    name: str
    parts: list[Part]
    mounts: list[Mount] = field(default_factory=list)
    settings: Mapping[str, str] = field(default_factory=dict)


def off_switch(cluster: Cluster, unit: str, part: str) -> Path:
    """While this file is there the part is kept down."""
    return cluster.unit_folder(unit) / f"{part}.off"


def start(cluster: Cluster, unit: Unit, plug_in: Callable[[int], None]) -> int:
    """Start a unit, give it its network by `plug_in`, and let its programs begin. Returns its first process."""
    branch = Branch.of(cluster.name)
    folder = cluster.unit_folder(unit.name)
    logs = folder / "log"
    logs.mkdir(parents=True, exist_ok=True)
    spec = folder / "unit.json"
    spec.write_text(json.dumps(_described(cluster, unit, branch.make(unit.name))))
    boot = shutil.copy(Path(__file__).with_name("boot.py"), folder)
    # -I -S: nothing of the user's Python may stop a machine from booting.
    with subprocess.Popen(
        [sys.executable, "-I", "-S", boot, spec],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd="/",
        env={"PATH": SYSTEM_PATH},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise ClusterError(
                f"{unit.name} did not start: {process.stderr.read() if process.stderr else ''}"
            )
        pid = int(line)
        plug_in(pid)
        process.stdin.write("go\n")
        process.stdin.flush()
    return pid


def _described(cluster: Cluster, unit: Unit, cgroups: list[str]) -> dict[str, object]:
    logs = cluster.unit_folder(unit.name) / "log"
    # All of it is written in Go and shares few processors: let it collect garbage less often.
    base = {"PATH": SYSTEM_PATH, "HOME": "/root", "LANG": "C.UTF-8", "GOGC": "400"}
    parts = []
    for part in unit.parts:
        own = {"log": str(logs / f"{part.name}.log"), "off": str(off_switch(cluster, unit.name, part.name))}
        parts.append({**asdict(part), **own, "env": {**base, **part.env}})
    return {
        "hostname": unit.name,
        "log": str(logs / "boot.log"),
        "cgroups": cgroups,
        "mounts": [asdict(mount) for mount in unit.mounts],
        "settings": dict(unit.settings),
        "parts": parts,
    }


def power_off(cluster: Cluster, unit: str) -> None:
    """End a unit as a power cut would: everything at once, nothing said to anyone. Its disk stays."""
    branch = Branch.of(cluster.name)
    branch.kill(unit)
    branch.remove(unit)


def first_process(cluster: Cluster, unit: str) -> int | None:
    return Branch.of(cluster.name).first_process(unit)


def running(cluster: Cluster, unit: str) -> int:
    pid = first_process(cluster, unit)
    if pid is None:
        raise ClusterError(
            f"{unit} of cluster {cluster.name!r} is not running",
            f"python -m tools.cluster up --name {cluster.name}",
        )
    return pid


def last_words(cluster: Cluster, unit: str, part: str, lines: int = 3) -> str:
    """The end of a program's log, for an error that says why."""
    log = cluster.unit_folder(unit) / "log" / f"{part}.log"
    try:
        return " / ".join(log.read_text(errors="replace").splitlines()[-lines:])
    except FileNotFoundError:
        return f"{part} has not started"


def require_root() -> None:
    if sys.platform != "linux":
        raise ClusterError(
            f"a cluster of namespaces needs Linux; this is {sys.platform}", "use kind, or a Linux machine"
        )
    if os.geteuid() != 0:
        raise ClusterError("a cluster of namespaces needs root", "run the command with sudo")
