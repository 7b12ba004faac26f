"""Peers and ours side by side: run in turns, compared by medians, as ratios with what is wanted of them."""

from __future__ import annotations

import argparse
import functools
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
    """Our script and its words; `{round}` in a word becomes 1, 2, 3, ..."""
    peers: dict[str, tuple[str, ...]]
    """By name: the environment, the script and its words. The environment `ours` has our own script."""
    number: str
    goals: tuple[Goal, ...]
    least: float = 0.0
    """What ours must reach by itself; 0: nothing."""


def run(command: list[str], timeout: float = 3600) -> Numbers:
    """The numbers that a script prints in its last line."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise RuntimeError(f"{command} printed nothing:\n{done.stderr[-2000:]}")
    found = {key: value for key, value in json.loads(lines[-1]).items() if isinstance(value, int | float)}
    if "inserts_per_s" in found:
        found["both_per_s"] = found["items_per_s"] + found["inserts_per_s"]
    return found


@functools.cache
def _run_once(number: int, command: tuple[str, ...]) -> Numbers:
    """Rows that take different numbers of one command share its rounds."""
    return run(list(command))


def command_of(peer: tuple[str, ...], *, install: bool) -> list[str] | None:
    """How to run a peer; None when it is not installed."""
    where, script, *words = peer
    if where == "ours":
        return [sys.executable, str(HERE / script), *words]
    python = python_of(where, install=install) if where else sys.executable
    return [python, str(HERE / "peers" / script), *words] if python else None


def compare(row: Row, rounds: int, *, install: bool) -> bool:
    """Run a row and print it; whether its goals were met."""
    commands = {name: command_of(peer, install=install) for name, peer in row.peers.items()}
    missing = [name for name, command in commands.items() if command is None]
    commands["Callsheet"] = [sys.executable, str(HERE / row.ours[0]), *row.ours[1:]]
    results: dict[str, list[Numbers]] = {}
    for number in range(rounds):
        for name, command in commands.items():
            if command is not None:
                words = [word.replace("{round}", str(number + 1)) for word in command]
                results.setdefault(name, []).append(_run_once(number, tuple(words)))
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
        extra += [f"{numbers['steps']:,.0f} steps"] if "steps" in numbers else []
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
    if row.least:
        fine = ours >= row.least
        met = met and fine
        print(f"  goal >= {row.least:g}: {'met' if fine else 'MISSED'}")
    sys.stdout.flush()
    return met


def arguments(description: str | None) -> argparse.ArgumentParser:
    """What every comparison can be told."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--install", action="store_true", help="install the peers that are missing")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="rows whose name has this word")
    return parser


def compare_all(rows: list[Row], wanted: argparse.Namespace) -> None:
    """Run and print the rows that are wanted, and how many met their goals."""
    found = [row for row in rows if wanted.only in row.name]
    missed = [row.name for row in found if not compare(row, wanted.rounds, install=wanted.install)]
    print(
        f"\n{len(found) - len(missed)} of {len(found)} rows met their goals"
        + "".join(f"\n  not: {n}" for n in missed)
    )
