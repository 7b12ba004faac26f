"""A cluster comes and goes, whole or in pieces, and the machine is as it was before."""

from __future__ import annotations

import os
import random
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import own_name
from kubectl import Kube, eventually, pod

from tools.cluster import build, lifecycle, network, state
from tools.cluster.cgroups import Branch, Hierarchies

pytestmark = pytest.mark.exclusive

REPOSITORY = Path(__file__).parents[2]
KERNEL_SETTINGS = ("net/ipv4/ip_forward", "vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops")
NAMESPACES = ("net", "pid", "mnt", "uts", "ipc")
KUBELET_PLACES = (
    "/var/lib/kubelet",
    "/var/log/pods",
    "/var/log/containers",
    "/var/lib/cni",
    "/run/netns",
    "/run/xtables.lock",
)


def output(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def untouched() -> dict[str, object]:
    """What no cluster changes, not even while it runs."""
    rules = [line for line in output("iptables-save").splitlines() if not line.startswith(("#", ":"))]
    return {
        "mounts": sorted(line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()),
        "rules": rules,
        "settings": [Path("/proc/sys", name).read_text() for name in KERNEL_SETTINGS],
        "places": [place for place in KUBELET_PLACES if Path(place).exists()],
    }


def born(pid: int) -> str:
    """When a process began, so that another one with its number is not taken for it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if fields[0] == "Z" else fields[19]


def namespaces(pid: int) -> set[str]:
    """Those of a process; none when it has just ended."""
    try:
        return {os.readlink(f"/proc/{pid}/ns/{kind}") for kind in NAMESPACES}
    except OSError:
        return set()


class Traces:
    """All that a running cluster has on the machine, so that one can ask what is left of it."""

    def __init__(self, own: Kube) -> None:
        assert own.own is not None
        self.cluster = own.own
        self.processes = {pid: born(pid) for pid in Branch.of(self.cluster.name).processes()}
        ours = namespaces(os.getpid())
        self.namespaces = {found for pid in self.processes for found in namespaces(pid)} - ours

    def down(self) -> bool:
        """Take the cluster down. (The kernel gives the numbers of namespaces out again, to processes born later.)"""
        self.ended = time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK")
        return lifecycle.down(self.cluster.name)

    def left(self) -> list[str]:
        found = [
            f"process {pid}"
            for pid, time_of_birth in self.processes.items()
            if time_of_birth and born(pid) == time_of_birth
        ]
        for link in Path("/proc").glob("[0-9]*/ns/*"):
            try:
                birth = born(int(link.parts[2]))
                if os.readlink(link) in self.namespaces and birth and float(birth) <= self.ended:
                    found.append(f"namespace {link}")
            except OSError:
                continue
        for mount in Hierarchies.of_this_machine().mounts:
            found += map(str, mount.glob(f"callsheet-{self.cluster.name}"))
        # The addresses may already be another cluster's.
        if self.cluster.number not in network.numbers_in_use():
            seen = output("ip", "-o", "addr") + output("ip", "route", "show", "table", "all")
            found += [line for line in seen.splitlines() if self.cluster.address(0)[:-1] in line]
        return found + [str(path) for path in (state.ROOT / self.cluster.name,) if path.exists()]


@pytest.fixture(scope="module")
def name() -> str:
    return own_name("gone")


class Ups:
    """Starts clusters for these tests, and knows how long those took that were not there before."""

    def __init__(self, start: Callable[[str, int], Kube]) -> None:
        self._start = start
        self.took: list[float] = []

    def __call__(self, nodes: int = 2) -> Kube:
        new = not Branch.of(own_name("gone")).exists()
        begun = time.monotonic()
        own = self._start("gone", nodes)
        if new:
            self.took.append(time.monotonic() - begun)
        return own

    def busy(self) -> Kube:
        """The same with running pods on both nodes."""
        own = self()
        for number in range(4):
            own.apply(pod(f"p{number}", build.PAUSE_IMAGE, ["/pause"], imagePullPolicy="Never"))
        own("wait", "pod", "--all", "--for=condition=Ready", "--timeout=60s")
        return own


@pytest.fixture(scope="module")
def up(start: Callable[[str, int], Kube]) -> Ups:
    """A cluster that runs already serves the next test as well as a new one, which costs ten seconds."""
    return Ups(start)


def test_up_after_an_interrupted_up_begins_anew(up: Ups, name: str) -> None:
    words = [sys.executable, "-m", "tools.cluster", "up", "--name", name]
    with subprocess.Popen(words, cwd=REPOSITORY, stderr=subprocess.DEVNULL) as first:
        eventually(lambda: Branch.of(name).first_process("node-1") is not None)
        first.kill()
    assert up().node_ready("node-1") == "True"


def test_up_twice_is_one_cluster(up: Ups) -> None:
    own = up.busy()
    up(nodes=1)
    assert len(own.get("pods")["items"]) == 4


def test_up_after_a_crash_removes_the_pieces_first(up: Ups, name: str) -> None:
    own = up.busy()
    first = Branch.of(name).first_process("control")
    assert first is not None
    os.kill(first, signal.SIGKILL)
    again = up()
    assert again.get("pods")["items"] == []
    eventually(lambda: own.node_ready("node-1") == "True")


def test_two_clusters_stand_side_by_side(up: Ups, start: Callable[[str, int], Kube], name: str) -> None:
    left = up.busy()
    right = start("beside", 1)
    assert left.own is not None
    assert right.own is not None
    assert left.own.number != right.own.number
    assert right.get("pods")["items"] == []
    stranger = left.words("--server", f"https://{right.own.api_host}:6443", "get", "pods")
    assert (
        "certificate signed by unknown authority"
        in subprocess.run(stranger, capture_output=True, text=True).stderr
    )
    lifecycle.down(name)
    assert right.node_ready("node-0") == "True"
    right.apply(pod("alone", build.PAUSE_IMAGE, ["/pause"], imagePullPolicy="Never"))
    right.ready("pod", "alone")
    lifecycle.down(right.own.name)


@pytest.mark.parametrize("seed", [1, 2])
def test_down_works_after_random_parts_were_killed(up: Ups, seed: int) -> None:
    traces = Traces(up.busy())
    victims = sorted(traces.processes)
    for pid in random.Random(seed).sample(victims, len(victims) // 3):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue  # it went with another one
    traces.down()
    assert traces.left() == []


def test_down_works_when_the_record_of_the_cluster_is_lost(up: Ups, name: str) -> None:
    own = up.busy()
    traces = Traces(own)
    (own.kubeconfig.parent / "cluster.json").unlink()
    assert name in lifecycle.everywhere()
    assert traces.down()
    eventually(lambda: traces.left() == [], 60)


def test_down_leaves_nothing_and_can_be_said_twice(up: Ups, name: str) -> None:
    lifecycle.down(name)
    before = untouched()
    own = up.busy()
    traces = Traces(own)
    assert len(traces.processes) > 20
    assert len(traces.namespaces) >= 3 * len(NAMESPACES)
    assert untouched() == before
    assert stat.S_IMODE(own.kubeconfig.stat().st_mode) == 0o600
    assert traces.down()
    assert traces.left() == []
    assert untouched() == before
    assert not lifecycle.down(name)


def test_a_built_cluster_is_up_within_fifteen_seconds(up: Ups, name: str) -> None:
    while len(up.took) < 3 and min(up.took, default=99) >= 15:
        lifecycle.down(name)
        up()
    assert min(up.took) < 15, up.took
