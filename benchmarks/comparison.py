"""Runs Callsheet and other systems in turns and compares their medians with goals."""

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
    """A ratio to a peer that ours should reach (or stay below)."""

    peer: str
    ratio: float
    at_most: bool = False

    def __str__(self) -> str:
        return f"{'<=' if self.at_most else '>='} {self.ratio:g} x {self.peer}"


@dataclass(frozen=True)
class Row:
    """One comparison: what to run, which number to compare, and its goals."""

    name: str
    ours: tuple[str, ...]
    """Our script and its arguments; `{round}` becomes 1, 2, 3, ..."""
    peers: dict[str, tuple[str, ...]]
    """By name: the environment, the script and its arguments. The environment `ours` means a script of our own."""
    number: str
    goals: tuple[Goal, ...]
    minimum: float = 0.0
    """An absolute goal for ours; 0: none."""


def run(command: list[str], timeout: float = 3600) -> Numbers:
    """The numbers in the last line that a script prints."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise RuntimeError(f"{command} printed nothing:\n{done.stderr[-2000:]}")
    numbers = {key: value for key, value in json.loads(lines[-1]).items() if isinstance(value, int | float)}
    if "inserts_per_s" in numbers:
        numbers["both_per_s"] = numbers["items_per_s"] + numbers["inserts_per_s"]
    return numbers


@functools.cache
def _run_once(number: int, command: tuple[str, ...]) -> Numbers:
    """Rows that use different numbers of the same command share its runs."""
    return run(list(command))


def command_of(peer: tuple[str, ...], *, install: bool) -> list[str] | None:
    """The command of a peer; None if it is not installed."""
    where, script, *words = peer
    if where == "ours":
        return [sys.executable, str(HERE / script), *words]
    python = python_of(where, install=install) if where else sys.executable
    return [python, str(HERE / "peers" / script), *words] if python else None


def compare(row: Row, rounds: int, *, install: bool) -> bool:
    """Run and print a row; returns whether it met its goals."""
    commands = {name: command_of(peer, install=install) for name, peer in row.peers.items()}
    missing = [name for name, command in commands.items() if command is None]
    commands["Callsheet"] = [sys.executable, str(HERE / row.ours[0]), *row.ours[1:]]
    results: dict[str, list[Numbers]] = {}
    for number in range(rounds):
        for name, command in commands.items():
            if command is not None:
                words = [word.replace("{round}", str(number + 1)) for word in command]
                results.setdefault(name, []).append(_run_once(number, tuple(words)))
    medians = {
        name: {key: statistics.median(one[key] for one in runs) for key in runs[0]}
        for name, runs in results.items()
    }
    ours = medians["Callsheet"][row.number]
    print(f"\n{row.name}")
    for name, numbers in medians.items():
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
        if goal.peer in medians:
            ratio = ours / medians[goal.peer][row.number]
            fine = ratio <= goal.ratio if goal.at_most else ratio >= goal.ratio
            met = met and fine
            print(f"  goal {goal}: {'met' if fine else 'MISSED'} ({ratio:.2f})")
    if row.minimum:
        fine = ours >= row.minimum
        met = met and fine
        print(f"  goal >= {row.minimum:g}: {'met' if fine else 'MISSED'}")
    sys.stdout.flush()
    return met


def arguments(description: str | None) -> argparse.ArgumentParser:
    """The options of every comparison."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--install", action="store_true", help="install missing peers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="only rows whose name contains this")
    return parser


def compare_all(rows: list[Row], options: argparse.Namespace) -> None:
    """Run the selected rows and print how many met their goals."""
    selected = [row for row in rows if options.only in row.name]
    missed = [row.name for row in selected if not compare(row, options.rounds, install=options.install)]
    print(
        f"\n{len(selected) - len(missed)} of {len(selected)} rows met their goals"
        + "".join(f"\n  not: {n}" for n in missed)
    )
