"""A cluster comes and goes, whole or in pieces, and the machine is as it was before."""

from __future__ import annotations

import os
import random
import signal
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kube import Kube, eventually, pod

from tools.cluster import build, lifecycle, state
from tools.cluster.cgroups import Branch, Hierarchies

pytestmark = pytest.mark.exclusive

PROGRAMS = {
    "containerd",
    "containerd-shim",
    "kubelet",
    "kube-proxy",
    "kube-apiserver",
    "etcd",
    "pause",
    "coredns",
}
KERNEL_SETTINGS = ("net/ipv4/ip_forward", "vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops")


def output(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def machine() -> dict[str, object]:
    """All of the machine that a cluster could leave a trace in."""
    mounts = Hierarchies.of_this_machine().mounts
    rules = [line for line in output("iptables-save").splitlines() if not line.startswith(("#", ":"))]
    return {
        "processes": sorted(name for name in output("ps", "-eo", "comm=").split() if name in PROGRAMS),
        "mounts": sorted(line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()),
        "network namespaces": sorted(
            output("lsns", "--type", "net", "--noheadings", "--output", "NS").split()
        ),
        "process namespaces": sorted(
            output("lsns", "--type", "pid", "--noheadings", "--output", "NS").split()
        ),
        "named namespaces": sorted(path.name for path in Path("/run/netns").glob("*")),
        "cgroups": sorted(str(path) for mount in mounts for path in mount.glob("callsheet-*")),
        "links": sorted(path.name for path in Path("/sys/class/net").iterdir()),
        "routes": output("ip", "route", "show", "table", "all"),
        "rules": rules,
        "settings": [Path("/proc/sys", name).read_text() for name in KERNEL_SETTINGS],
        "folders": sorted(str(path) for path in (*state.ROOT.glob("*"), *Path("/var/log").glob("*"))),
        "volumes": Path("/tmp/hostpath_pv").exists(),
    }


def settled(before: dict[str, object]) -> dict[str, object]:
    """The kernel removes a network namespace a moment after its last process."""
    end = time.monotonic() + 10
    while (now := machine()) != before and time.monotonic() < end:
        time.sleep(0.1)
    return now


@pytest.fixture
def name() -> str:
    assert "gone" not in state.known()
    return "gone"


def busy(start: Callable[[str, int], Kube], name: str) -> Kube:
    """A cluster with running pods on both nodes."""
    own = start(name, 2)
    for number in range(4):
        own.apply(pod(f"p{number}", build.PAUSE_IMAGE, ["/pause"], imagePullPolicy="Never"))
    own("wait", "pod", "--all", "--for=condition=Ready", "--timeout=60s")
    return own


def test_down_leaves_nothing_and_can_be_said_twice(start: Callable[[str, int], Kube], name: str) -> None:
    before = machine()
    own = busy(start, name)
    assert machine() != before
    assert stat.S_IMODE(own.kubeconfig.stat().st_mode) == 0o600
    begun = time.monotonic()
    assert lifecycle.down(name)
    assert time.monotonic() - begun < 15
    assert settled(before) == before
    assert not lifecycle.down(name)


@pytest.mark.parametrize("seed", [1, 2])
def test_down_works_after_random_parts_were_killed(
    start: Callable[[str, int], Kube], name: str, seed: int
) -> None:
    before = machine()
    busy(start, name)
    victims = sorted(Branch.of(name).processes())
    for pid in random.Random(seed).sample(victims, len(victims) // 3):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue  # went with another one
    lifecycle.down(name)
    assert settled(before) == before


def test_down_works_when_the_record_of_the_cluster_is_lost(
    start: Callable[[str, int], Kube], name: str
) -> None:
    before = machine()
    own = busy(start, name)
    (own.kubeconfig.parent / "cluster.json").unlink()
    assert name in lifecycle.everywhere()
    assert lifecycle.down(name)
    assert settled(before) == before


def test_up_after_a_crash_removes_the_pieces_first(start: Callable[[str, int], Kube], name: str) -> None:
    own = busy(start, name)
    first = Branch.of(name).first_process("control")
    assert first is not None
    os.kill(first, signal.SIGKILL)
    again = start(name, 2)
    assert again.get("pods")["items"] == []
    eventually(lambda: own.node_ready("node-1") == "True")
    lifecycle.down(name)


def test_up_twice_is_one_cluster(start: Callable[[str, int], Kube], name: str) -> None:
    own = busy(start, name)
    start(name, 1)
    assert len(own.get("pods")["items"]) == 4
    lifecycle.down(name)


def test_two_clusters_stand_side_by_side(start: Callable[[str, int], Kube], name: str) -> None:
    left = busy(start, name)
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
    lifecycle.down("beside")
