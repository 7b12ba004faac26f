"""The cluster's own branch of the machine's cgroups, because it is the one list of its processes that cannot lie.

Every process of a cluster starts in the branch and can only leave it for a sub-branch. So `down` finds all of them
after any crash, and a folder removed here is a limit removed.

    /callsheet-NAME/UNIT/system      the unit's own programs
    /callsheet-NAME/UNIT/kubepods    what its kubelet makes

On cgroup v1 the branch exists under every controller; on v2 there is one tree.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.cluster.errors import ClusterError
from tools.cluster.shell import wait_until

V2_CONTROLLERS = ("cpu", "cpuset", "io", "memory", "pids")
PREFIX = "callsheet-"


@dataclass(frozen=True)
class Hierarchies:
    """Where the machine's cgroups are mounted: one place on v2, one per controller on v1."""

    mounts: tuple[Path, ...]
    unified: bool

    @staticmethod
    def of_this_machine(mountinfo: str | None = None) -> Hierarchies:
        text = Path("/proc/self/mountinfo").read_text() if mountinfo is None else mountinfo
        v1: dict[str, Path] = {}
        for line in text.splitlines():
            mounted, _, described = line.partition(" - ")
            kind, _, options = described.split(maxsplit=2)
            place = mounted.split()[4]
            if kind == "cgroup2" and place == "/sys/fs/cgroup":
                return Hierarchies((Path(place),), unified=True)
            # A machine on v1 may have a v2 tree without controllers beside it, and runc makes its folders there too.
            if kind in ("cgroup", "cgroup2"):
                v1.setdefault(f"{kind} {options}", Path(place))
        if not v1:
            raise ClusterError(
                "no cgroups are mounted under /sys/fs/cgroup", "mount them, or use another machine"
            )
        return Hierarchies(tuple(v1.values()), unified=False)


@dataclass(frozen=True)
class Branch:
    """The branch of one cluster."""

    cluster: str
    machine: Hierarchies

    @staticmethod
    def of(cluster: str) -> Branch:
        return Branch(cluster, Hierarchies.of_this_machine())

    def path(self, unit: str) -> str:
        """A unit's place within every hierarchy, as the kubelet's `cgroupRoot` wants it."""
        return f"/{PREFIX}{self.cluster}/{unit}"

    def make(self, unit: str) -> list[str]:
        """Make a unit's folders; returns the files to which its first process writes its id."""
        procs = []
        for mount in self.machine.mounts:
            steps = (PREFIX + self.cluster, unit, "system")
            for depth in range(1, len(steps) + 1):
                self._folder(mount.joinpath(*steps[:depth]))
            procs.append(str(mount.joinpath(*steps, "cgroup.procs")))
        return procs

    def _folder(self, folder: Path) -> None:
        parent = folder.parent
        if self.machine.unified:
            # A cgroup hands controllers down only when told to; the leaf `system` is where processes may live.
            there = (parent / "cgroup.controllers").read_text().split()
            _hand_down(parent, " ".join(f"+{name}" for name in V2_CONTROLLERS if name in there))
        folder.mkdir(exist_ok=True)
        # A cpuset of v1 is born empty, and takes no process until it is told its CPUs and memories.
        for name in ("cpuset.cpus", "cpuset.mems"):
            if not self.machine.unified and (parent / name).exists():
                (folder / name).write_text((parent / name).read_text())

    def _tops(self, unit: str = "") -> list[Path]:
        return [mount / (PREFIX + self.cluster) / unit for mount in self.machine.mounts]

    def processes(self, unit: str = "") -> set[int]:
        """Every process of the cluster (or of one unit), whoever started it."""
        return {pid for top in self._tops(unit) for pid in _processes_below(top)}

    def first_process(self, unit: str) -> int | None:
        """Process 1 of a running unit, as the machine numbers it."""
        for pid in _processes_below(self._tops(unit)[0] / "system"):
            inside = _numbers_of(pid)
            if len(inside) == 2 and inside[-1] == 1:
                return pid
        return None

    def kill(self, unit: str = "", seconds: float = 60) -> None:
        """End every process of the cluster (or of one unit) as a power cut would."""
        seen: dict[int, str] = {}

        def nobody_left() -> bool:
            left = self.processes(unit)
            for pid in left:
                seen.setdefault(pid, _birth(pid))
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            # A process leaves its cgroup a moment before it has let go of its namespaces.
            return not left and not any(birth and _birth(pid) == birth for pid, birth in seen.items())

        wait_until(nobody_left, f"the processes of cluster {self.cluster!r} to end", seconds)

    def remove(self, unit: str = "") -> None:
        """Remove the folders. A cgroup can be busy for a moment after its last process."""
        wait_until(
            lambda: all(_removed(top) for top in self._tops(unit)),
            f"the cgroups of {self.cluster!r} to go",
            60,
        )

    def exists(self) -> bool:
        return any(top.exists() for top in self._tops())


def clusters_with_cgroups() -> set[str]:
    """The names of all clusters that have left a trace in the machine's cgroups."""
    mounts = Hierarchies.of_this_machine().mounts
    return {path.name.removeprefix(PREFIX) for mount in mounts for path in mount.glob(f"{PREFIX}*")}


def _hand_down(folder: Path, controllers: str) -> None:
    try:
        (folder / "cgroup.subtree_control").write_text(controllers)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        # Only the root of all cgroups may have processes and limits below it; a container's own root is not that one.
        raise ClusterError(
            f"the cgroup {folder} has processes of its own, so that nothing below it can have limits",
            "start this container with the machine's cgroups (docker run --cgroupns=host)",
        ) from None


def _processes_below(top: Path) -> Iterator[int]:
    for folder, _, _ in os.walk(top):
        try:
            yield from map(int, Path(folder, "cgroup.procs").read_text().split())
        except (FileNotFoundError, OSError):
            continue


def _numbers_of(pid: int) -> list[int]:
    """A process's ids, from the machine's view to its innermost namespace's."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return []
    return [int(n) for line in status.splitlines() if line.startswith("NSpid:") for n in line.split()[1:]]


def _birth(pid: int) -> str:
    """When a process began; empty if it has ended, though nobody may have asked for its exit code yet."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state in "ZX" else fields[18]


def _removed(top: Path) -> bool:
    for folder, _, _ in os.walk(top, topdown=False):
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            continue
        except OSError:
            return False
    return True
