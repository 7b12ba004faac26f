"""The local backend compared with a plain loop of processes: time, memory, logs, planning and `--help`.

    python benchmarks/local_backend.py [--replicas 200] [--rounds 5]

Every number is the median of its rounds; ratios compare rounds of the same minute on the same machine. Two ratios
are printed for starting and stopping: of the supervisor's own work (from the moment it begins to start replicas until
all run, and from the request to stop until all are gone), and of the whole call from Python, which includes the
start of the supervisor's process.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from callsheet.backends.base import Status, backend
from callsheet.backends.local.client import LocalRun
from callsheet.spec.experiment import Experiment

NO_OP = ["sleep", "1000"]


def experiment(replicas: int, command: list[str]) -> Experiment:
    """One role with this many replicas."""
    role = {"name": "actor", "replicas": replicas, "command": command}
    return Experiment.model_validate({"metadata": {"name": "bench"}, "spec": {"roles": [role]}})


def popen_loop(replicas: int) -> tuple[float, float]:
    """Seconds to start and to stop this many processes without a supervisor."""
    begun = time.perf_counter()
    with tempfile.TemporaryFile() as output:
        children = [
            subprocess.Popen(
                NO_OP, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
            for _ in range(replicas)
        ]
    started = time.perf_counter()
    for child in children:
        child.terminate()
    for child in children:
        child.wait()
    return started - begun, time.perf_counter() - started


def resident(pid: int) -> int:
    """Resident memory of a process in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def our_run(replicas: int) -> dict[str, float]:
    """The same as a run: seconds of each part, and the supervisor's memory."""
    begun = time.perf_counter()
    run = backend("local").start(experiment(replicas, NO_OP), base=Path.cwd(), detach=True)
    status = next(status for status in run.watch(0.01) if status.phase == "Running")
    running = time.perf_counter()
    memory = resident(status.supervisor)
    stopping = time.perf_counter()
    run.stop()
    run.wait()
    stopped = time.perf_counter()
    inside = max(r.started for r in status.replicas) - min(r.started for r in status.replicas)
    run.delete()
    return {"start": inside, "whole": running - begun, "stop": stopped - stopping, "memory": memory}


def start_and_stop(replicas: int, rounds: int) -> None:
    """Ours beside the loop, in turns."""
    loops: list[tuple[float, float]] = []
    runs: list[dict[str, float]] = []
    small: list[dict[str, float]] = []
    for _ in range(rounds):
        loops.append(popen_loop(replicas))
        runs.append(our_run(replicas))
        small.append(our_run(1))
    loop = statistics.median(sum(pair) for pair in loops)
    inside = statistics.median(run["start"] + run["stop"] for run in runs)
    whole = statistics.median(run["whole"] + run["stop"] for run in runs)
    fixed = statistics.median(run["whole"] + run["stop"] for run in small)
    per = (
        statistics.median(r["memory"] for r in runs) - statistics.median(r["memory"] for r in small)
    ) / replicas
    print(f"start and stop {replicas} no-op replicas")
    print(f"  plain Popen loop                 {loop * 1e3:8.0f} ms")
    print(
        f"  supervisor's own work            {inside * 1e3:8.0f} ms   ratio {inside / loop:.2f}  (goal <= 1.5)"
    )
    print(
        f"  whole call from Python           {whole * 1e3:8.0f} ms   ratio {whole / loop:.2f}  (one replica alone: {fixed * 1e3:.0f} ms)"
    )
    print(
        f"supervisor memory per replica      {per / 1024:8.1f} KB  (goal < 100; {runs[0]['memory'] / 1e6:.0f} MB in all)"
    )


def log_lines(rounds: int) -> None:
    """How many lines a second arrive on disk from one container, and from eight together."""
    code = (
        "import sys\nchunk = (b'x' * 79 + b'\\n') * 1000\nfor _ in range(600): sys.stdout.buffer.write(chunk)"
    )
    for replicas in (1, 8):
        rates = []
        for _ in range(rounds):
            run = backend("local").start(
                experiment(replicas, [sys.executable, "-c", code]), base=Path.cwd(), detach=True
            )
            assert isinstance(run, LocalRun)
            status: Status = run.wait()
            written = sum(c.log_bytes for r in status.replicas for c in r.containers)
            rates.append(written / 80 / status.uptime)
            run.delete()
        print(
            f"log lines/s, {replicas} writer{'s' if replicas > 1 else ' '}              {statistics.median(rates):10,.0f}  (80 bytes each; bounded on purpose)"
        )


def timed(work: Callable[[], object], rounds: int) -> float:
    """Median seconds of a call."""
    times = []
    for _ in range(rounds):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--replicas", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["XDG_STATE_HOME"] = folder
        start_and_stop(options.replicas, options.rounds)
        log_lines(max(1, options.rounds // 2))
        many = experiment(10_000, [*NO_OP, "{index}"])
        plan = timed(lambda: backend("local").plan(many, base=Path.cwd()), options.rounds)
        print(f"plan of 10,000 replicas            {plan * 1e3:8.0f} ms  (goal < 1,000)")
        text = timed(lambda: json.dumps(backend("local").plan(many, base=Path.cwd()).to_data()), 1)
        print(f"  the same, written as JSON        {text * 1e3:8.0f} ms")
        command = [sys.executable, "-m", "callsheet", "--help"]
        shown = timed(lambda: subprocess.run(command, capture_output=True, check=True), 2 * options.rounds)
        empty = timed(lambda: subprocess.run([sys.executable, "-c", ""], check=True), 2 * options.rounds)
        print(
            f"callsheet --help                   {shown * 1e3:8.0f} ms  (goal < 150; Python alone {empty * 1e3:.0f} ms)"
        )
        os.chdir("/")


if __name__ == "__main__":
    main()
