"""The cluster's branch of the cgroups, on both versions. (A node that runs shows the one of this machine.)"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import why_not

from tools.cluster.cgroups import Branch, Hierarchies
from tools.cluster.errors import ClusterError

V1 = """\
30 23 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
32 30 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
33 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
"""
V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"


def test_version_one_has_a_place_per_controller() -> None:
    found = Hierarchies.of_this_machine(V1)
    assert [path.name for path in found.mounts] == ["cpu", "memory", "unified"]
    assert not found.unified


def test_version_two_has_one_place() -> None:
    assert Hierarchies.of_this_machine(V2) == Hierarchies((Path("/sys/fs/cgroup"),), unified=True)


def test_a_machine_without_cgroups_is_told_so() -> None:
    with pytest.raises(ClusterError, match="no cgroups"):
        Hierarchies.of_this_machine("23 1 8:1 / / rw - ext4 /dev/root rw")


def test_on_version_two_controllers_are_handed_down_to_the_unit_and_processes_live_in_its_leaf(
    tmp_path: Path,
) -> None:
    unit = tmp_path / "callsheet-x" / "node-0"
    for folder in (tmp_path, unit.parent, unit):
        folder.mkdir(exist_ok=True)
        (folder / "cgroup.controllers").write_text("cpuset cpu io memory hugetlb pids rdma")
    branch = Branch("x", Hierarchies((tmp_path,), unified=True))
    assert branch.make("node-0") == [str(unit / "system" / "cgroup.procs")]
    assert branch.path("node-0") == "/callsheet-x/node-0"
    for folder in (tmp_path, unit.parent, unit):
        assert (folder / "cgroup.subtree_control").read_text() == "+cpu +cpuset +io +memory +pids"


def test_in_a_container_with_cgroups_of_its_own_the_way_out_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory")

    def busy(self: Path, text: str) -> None:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(self))

    monkeypatch.setattr(Path, "write_text", busy)
    with pytest.raises(ClusterError, match="has processes of its own") as caught:
        Branch("x", Hierarchies((tmp_path,), unified=True)).make("node-0")
    assert "--cgroupns=host" in str(caught.value)


SEEN_AS_VERSION_TWO = """
import os, subprocess
from tools.cluster.cgroups import Branch
branch = Branch.of("version-two")
assert branch.machine.unified
joined = branch.make("node-0")
programs = [subprocess.Popen(["sleep", "1000"]) for _ in range(3)]
for program in programs:
    for procs in joined:
        open(procs, "w").write(str(program.pid))
assert branch.processes() == branch.processes("node-0") == {program.pid for program in programs}
branch.kill()
assert [program.wait() for program in programs] == [-9, -9, -9]
branch.remove()
assert not branch.exists()
"""


def test_on_a_real_tree_of_version_two_processes_are_found_and_ended() -> None:
    trees = [
        line.split()[4]
        for line in Path("/proc/self/mountinfo").read_text().splitlines()
        if " - cgroup2 " in line
    ]
    if why_not() or not trees:
        pytest.skip("needs root and a cgroup v2 tree")
    # A machine on v1 has its v2 tree elsewhere: in a mount namespace of our own it can stand where v2 has it.
    script = 'test "$0" = /sys/fs/cgroup || mount --bind "$0" /sys/fs/cgroup; exec "$1" -c "$2"'
    words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
    repository = Path(__file__).parents[2]
    subprocess.run([*words, trees[0], sys.executable, SEEN_AS_VERSION_TWO], cwd=repository, check=True)
