"""The data plane beside its peers: the same rollouts, weights, replay and requests, in the same minutes, as ratios.

    python benchmarks/dataplane.py [--install] [--rounds 3] [--seconds 3] [--only WORD] [--soak SECONDS]

Each comparison runs peer and ours in turns and compares medians. Peers that are not installed are left out;
`--install` installs them into environments of their own, outside the tree (Ray and Reverb take some gigabytes).
The bare ring and the bare shared memory look at counters all the time: they are the limit, not something to use.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from peers.environments import python_of

HERE = Path(__file__).parent

Numbers = dict[str, float]


@dataclass(frozen=True)
class Goal:
    """At least (or at most) so many times a peer."""

    peer: str
    ratio: float
    most: bool = False

    def __str__(self) -> str:
        return f"{'<=' if self.most else '>='} {self.ratio:g} x {self.peer}"


@dataclass(frozen=True)
class Row:
    """One comparison: what is run, which number counts, and what is wanted."""

    name: str
    ours: tuple[str, ...]
    peers: dict[str, tuple[str, ...]]
    """By name: the environment, the script and its words."""
    number: str
    goals: tuple[Goal, ...]


def trajectories(
    name: str, payload: str, writers: int, way: str, goals: tuple[Goal, ...], seconds: str
) -> Row:
    """Rollouts from writers to a reader."""
    words = (payload, str(writers), seconds)
    everyone = {
        "ring": ("", "ring.py", *words),
        "hand-over": ("", "handover.py", *words),
        "pyzmq": ("", "bare_zmq.py", *words),
        "CURVE": ("", "bare_zmq.py", *words, "curve"),
        "Ray": ("ray", "ray_actors.py", *words),
        "Reverb": ("reverb", "reverb_table.py", *words, "queue"),
    }
    near = ["ring", "hand-over", "Ray", "Reverb"] if way == "memory" else ["pyzmq", "CURVE", "Ray"]
    wanted = {goal.peer for goal in goals} | set(near)
    peers = {peer: command for peer, command in everyone.items() if peer in wanted}
    return Row(name, ("trajectories", *words, way), peers, "items_per_s", goals)


def rows(seconds: str) -> list[Row]:
    """What the data plane must show."""
    found = [
        trajectories(
            f"same host, 1.05 MB, {n} writer{'s' * (n > 1)}",
            "1.05MB",
            n,
            "memory",
            (Goal("Ray", 20), Goal("Reverb", 20), Goal("ring", 0.7)),
            seconds,
        )
        for n in (1, 2)
    ]
    found += [
        trajectories(
            "same host, 1 KB, 2 writers", "1KB", 2, "memory", (Goal("Ray", 10), Goal("pyzmq", 1)), seconds
        ),
        trajectories(
            "TCP, 565 KB, 2 writers", "565KB", 2, "network", (Goal("Ray", 3), Goal("pyzmq", 0.8)), seconds
        ),
        trajectories(
            "TCP encrypted, 1.05 MB, 1 writer", "1.05MB", 1, "encrypted", (Goal("Ray", 1),), seconds
        ),
        Row(
            "6.76 MB of weights to 2 readers, ms",
            ("weights", "60"),
            {"shared memory": ("", "weights.py", "60")},
            "ms",
            (Goal("shared memory", 1.8, most=True),),
        ),
        Row(
            "publish() p99 with 128 readers, us",
            ("publish", "128", "300"),
            {"1 reader": ("ours", "publish", "1", "300")},
            "p99_us",
            (Goal("1 reader", 1.5, most=True),),
        ),
    ]
    found += [
        Row(
            f"replay, prioritised, {payload}, inserts and samples",
            ("replay", payload, "1", seconds),
            {"Reverb": ("reverb", "reverb_table.py", payload, "1", seconds, "prioritised")},
            "both_per_s",
            (Goal("Reverb", 5),),
        )
        for payload in ("565KB", "1KB")
    ]
    found.append(
        Row(
            "policy server, 64 clients, requests/s",
            ("policy", "64", seconds),
            {
                "gRPC": ("grpc", "grpc_policy.py", "64", seconds),
                "Ray": ("ray", "ray_policy.py", "64", seconds),
            },
            "requests_per_s",
            (),
        )
    )
    return found


def run(command: list[str], timeout: float = 300) -> Numbers:
    """The numbers that a script prints in its last line."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise RuntimeError(f"{command} printed nothing:\n{done.stderr[-2000:]}")
    found = {key: value for key, value in json.loads(lines[-1]).items() if isinstance(value, int | float)}
    if "inserts_per_s" in found:
        found["both_per_s"] = found["items_per_s"] + found["inserts_per_s"]
    return found


def command_of(peer: tuple[str, ...], *, install: bool) -> list[str] | None:
    """How to run a peer; None when it is not installed."""
    where, script, *words = peer
    if where == "ours":
        return [sys.executable, str(HERE / "dataplane_ours.py"), script, *words]
    python = python_of(where, install=install) if where else sys.executable
    return [python, str(HERE / "peers" / script), *words] if python else None


def compare(row: Row, rounds: int, *, install: bool) -> bool:
    """Run a row and print it; whether its goals were met."""
    commands = {name: command_of(peer, install=install) for name, peer in row.peers.items()}
    missing = [name for name, command in commands.items() if command is None]
    commands["Callsheet"] = [sys.executable, str(HERE / "dataplane_ours.py"), *row.ours]
    results: dict[str, list[Numbers]] = {}
    for _ in range(rounds):
        for name, command in commands.items():
            if command is not None:
                results.setdefault(name, []).append(run(command))
    middle = {
        name: {key: statistics.median(one[key] for one in found) for key in found[0]}
        for name, found in results.items()
    }
    ours = middle["Callsheet"][row.number]
    print(f"\n{row.name}")
    for name, numbers in middle.items():
        ratio = "" if name == "Callsheet" else f"  ours / it = {ours / numbers[row.number]:.2f}"
        extra = [f"{numbers['mb_per_s']:,.0f} MB/s"] if "mb_per_s" in numbers else []
        extra += (
            [f"{numbers['reader_cpu_s_per_gb']:.2f} CPU s/GB"] if "reader_cpu_s_per_gb" in numbers else []
        )
        extra += [f"{numbers['inserts_per_s']:,.0f} inserts/s"] if "inserts_per_s" in numbers else []
        extra += (
            [f"p50 {numbers['p50_us']:,.0f} us, p99 {numbers['p99_us']:,.0f} us"]
            if "p50_us" in numbers
            else []
        )
        print(f"  {name:14} {numbers[row.number]:12,.2f}  {', '.join(extra):46}{ratio}")
    for name in missing:
        print(f"  {name:14} not installed (--install)")
    met = True
    for goal in row.goals:
        if goal.peer in middle:
            ratio = ours / middle[goal.peer][row.number]
            fine = ratio <= goal.ratio if goal.most else ratio >= goal.ratio
            met = met and fine
            print(f"  goal {goal}: {'met' if fine else 'MISSED'} ({ratio:.2f})")
    sys.stdout.flush()
    return met


def soak(seconds: float) -> None:
    """Trajectories for long, with the reader's memory at the begin and at the end."""
    ours = [sys.executable, str(HERE / "dataplane_ours.py"), "trajectories", "565KB", "2"]
    short = run([*ours, "5", "memory"])
    long = run([*ours, str(seconds), "memory"], timeout=seconds + 300)
    growth = long["peak_mb"] - short["peak_mb"]
    print(
        f"\nsoak of {seconds:.0f} s: {long['items_per_s']:,.0f} items/s, the reader's peak grew by {growth:.1f} MB"
    )


def main() -> None:
    """Run all comparisons."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--install", action="store_true", help="install the peers that are missing")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", default="3", help="of each measurement")
    parser.add_argument("--only", default="", help="rows whose name has this word")
    parser.add_argument(
        "--soak", type=float, default=0.0, help="also run for so many seconds and watch the memory"
    )
    wanted = parser.parse_args()
    found = [row for row in rows(wanted.seconds) if wanted.only in row.name]
    missed = [row.name for row in found if not compare(row, wanted.rounds, install=wanted.install)]
    if wanted.soak:
        soak(wanted.soak)
    print(
        f"\n{len(found) - len(missed)} of {len(found)} rows met their goals"
        + "".join(f"\n  not: {n}" for n in missed)
    )


if __name__ == "__main__":
    main()
