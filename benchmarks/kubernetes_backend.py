"""The Kubernetes backend compared with kubectl on a real cluster: starting, scaling, logs; and rendering.

    python benchmarks/kubernetes_backend.py            # starts a cluster of two nodes with tools/cluster (as root)
    python benchmarks/kubernetes_backend.py --kubeconfig FILE --image IMAGE --kubectl kubectl

Each pair is measured in turns in one run, medians are printed, and ratios compare the two: ours / kubectl's. "Ready" is
asked of the cluster in the same way for both, by kubectl.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

WAIT = "import signal,sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); print('here', flush=True); signal.pause()"
LINES = 20_000
TALK = f"""import pathlib, signal
for i in range({LINES}): print(f'{{i:08}} ' + 'x' * 90)
print(end='', flush=True)
pathlib.Path('/tmp/written').touch()
signal.pause()"""
WRITTEN = {"exec": {"command": ["test", "-e", "/tmp/written"]}, "periodSeconds": 1, "failureThreshold": 300}
"""Asked until the answer is yes, and never again: what is measured is reading, not writing."""
SILENCE = 60.0
"""Seconds without a line after which a reader has failed."""


def experiment(image: str, actors: int, code: str = WAIT, **more: Any) -> dict[str, Any]:
    """One learner and so many actors that do nothing but be there."""
    common = {"command": ["python3", "-c", code], "terminationGracePeriod": "2s", **more}
    return {
        "apiVersion": "callsheet.dev/v1alpha1",
        "kind": "Experiment",
        "metadata": {"name": "bench"},
        "spec": {
            "image": image,
            "workdir": {"exclude": ["*"]},
            "roles": [
                {"name": "learner", **common},
                {"name": "actor", "replicas": actors, "scale": {"min": 1, "max": 64}, **common},
            ],
        },
    }


class Bench:
    """A cluster, and the two ways to talk to it."""

    def __init__(self, kubeconfig: Path, kubectl: str, image: str, folder: Path) -> None:
        self.image, self.folder = image, folder
        self.kubectl_words = [kubectl, "--kubeconfig", str(kubeconfig)]
        self.env = os.environ | {
            "KUBECONFIG": str(kubeconfig),
            "XDG_STATE_HOME": str(folder),
            "CALLSHEET_ON": "kubernetes",
        }

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        done = subprocess.run(
            [*self.kubectl_words, *words], input=stdin, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"kubectl {' '.join(words)}: {done.stderr}")
        return done.stdout

    def callsheet(self, *words: str) -> str:
        command = [sys.executable, "-m", "callsheet", *words]
        done = subprocess.run(
            command, env=self.env, cwd=self.folder, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"callsheet {' '.join(words)}: {done.stderr}")
        return done.stdout

    def read(self, command: list[str], wanted: int) -> None:
        """So many lines of a command that follows logs; one that ends before, or is silent, has failed."""
        with subprocess.Popen(command, env=self.env, cwd=self.folder, stdout=subprocess.PIPE) as reader:
            assert reader.stdout
            seen, file = 0, reader.stdout.fileno()
            while seen < wanted:
                there, _, _ = select.select([file], [], [], SILENCE)
                data = os.read(file, 1 << 20) if there else b""
                if not data:
                    reader.kill()
                    what = "ended" if there else f"was silent for {SILENCE:g} s"
                    raise SystemExit(
                        f"{' '.join(command)} {what} after {seen:,} of {wanted:,} lines; are there enough "
                        "inotify instances (sysctl fs.inotify.max_user_instances)?"
                    )
                seen += data.count(b"\n")
            reader.kill()

    def write(self, actors: int, code: str = WAIT, **more: Any) -> Path:
        path = self.folder / "experiment.yaml"
        path.write_text(json.dumps(experiment(self.image, actors, code, **more)))
        return path

    def until_ready(self, count: int) -> None:
        while True:
            pods = json.loads(
                self.kubectl("get", "pods", "-l", "callsheet.dev/experiment=bench", "-o", "json")
            )["items"]
            ready = [
                p
                for p in pods
                if any(
                    c["type"] == "Ready" and c["status"] == "True" for c in p["status"].get("conditions", [])
                )
            ]
            if len(ready) == count and len(pods) == count:
                return
            time.sleep(0.1)

    def until_gone(self) -> None:
        while json.loads(self.kubectl("get", "pods", "-l", "callsheet.dev/experiment=bench", "-o", "json"))[
            "items"
        ]:
            time.sleep(0.2)

    def end(self) -> None:
        self.callsheet("stop", "bench")
        self.callsheet("delete", "bench", "--yes")
        self.until_gone()


def timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def starting(bench: Bench, actors: int, rounds: int) -> None:
    ours, theirs = [], []
    path = bench.write(actors)
    text = bench.callsheet("render", "-f", str(path))

    def apply() -> None:
        bench.kubectl("apply", "-f", "-", stdin=text)
        bench.until_ready(actors + 1)

    def run() -> None:
        bench.callsheet("run", "-d", "-f", str(path))
        bench.until_ready(actors + 1)

    for _ in range(rounds):
        theirs.append(timed(apply))
        bench.kubectl("delete", "-f", "-", "--wait=true", stdin=text)
        bench.until_gone()
        ours.append(timed(run))
        bench.end()
    mine, peer = statistics.median(ours), statistics.median(theirs)
    print(
        f"1+{actors} replicas, command to all ready     {mine:6.2f} s   kubectl apply {peer:6.2f} s   ratio {mine / peer:.2f}  (goal <= 1.2)"
    )


def scaling(bench: Bench) -> None:
    bench.callsheet("run", "-d", "-f", str(bench.write(3)))
    bench.until_ready(4)

    def scale(count: int) -> None:
        bench.callsheet("scale", "bench", f"actor={count}")
        bench.until_ready(count + 1)

    up, down = timed(lambda: scale(32)), timed(lambda: scale(3))
    print(f"scale 3 -> 32 -> 3                      {up:6.2f} s up, {down:.2f} s down")
    bench.end()


def following(bench: Bench, rounds: int) -> None:
    """Lines a second of 32 pods' logs, through `logs -f` and through `kubectl logs -f`."""
    bench.callsheet("run", "-d", "-f", str(bench.write(31, TALK, containerPatch={"startupProbe": WRITTEN})))
    bench.until_ready(32)
    wanted = 32 * LINES
    chosen = ["-l", "callsheet.dev/experiment=bench", "--tail=-1", "--max-log-requests=64"]
    kubectl = [*bench.kubectl_words, "logs", "-f", *chosen, "--prefix"]
    callsheet = [sys.executable, "-m", "callsheet", "logs", "-f", "bench"]
    ours, theirs = [], []
    for _ in range(rounds):
        theirs.append(timed(lambda: bench.read(kubectl, wanted)))
        ours.append(timed(lambda: bench.read(callsheet, wanted)))
    mine, peer = statistics.median(ours), statistics.median(theirs)
    print(
        f"logs -f over 32 pods                    {wanted / mine:8,.0f} lines/s   kubectl logs -f {wanted / peer:8,.0f}   ratio of time {mine / peer:.2f}"
    )
    bench.end()


def rendering() -> None:
    from callsheet.backends.kubernetes.render.objects import render, to_text
    from callsheet.spec.experiment import Experiment

    data = experiment("rl:1", 1000)
    data["spec"]["roles"][1]["scale"]["max"] = 1000
    made = Experiment.model_validate(data)
    spent = statistics.median(timed(lambda: to_text(render(made, "r1", {}))) for _ in range(5))
    print(f"render of 1,000 replicas                {spent * 1e3:6.0f} ms  (goal < 100)")


@contextmanager
def cluster(options: argparse.Namespace) -> Iterator[tuple[Path, str, str]]:
    """The cluster to measure: the one that is named, else one of two nodes of our own."""
    if options.kubeconfig:
        yield Path(options.kubeconfig), options.kubectl, options.image
        return
    from tools.cluster import images, lifecycle
    from tools.cluster.build import program

    own = lifecycle.up("bench", 2)
    try:
        yield own.kubeconfig, str(program("kubectl")), images.push_project_image(own)
    finally:
        lifecycle.down("bench")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kubeconfig")
    parser.add_argument("--kubectl", default="kubectl")
    parser.add_argument("--image", default="python:3.11-slim")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rendering()
    with cluster(options) as (kubeconfig, kubectl, image), tempfile.TemporaryDirectory() as folder:
        bench = Bench(kubeconfig, kubectl, image, Path(folder))
        starting(bench, 3, options.rounds)
        starting(bench, 32, max(1, options.rounds - 1))
        scaling(bench)
        following(bench, options.rounds)


if __name__ == "__main__":
    main()
