"""Writes docs/reference/faults.md from what was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tools.faults.matrix import FAULTS, VICTIMS, Cell, Key, cells
from tools.faults.plane import ROOT
from tools.faults.run import load

SOAK = Path(__file__).parent / "soak.json"
PAGE = ROOT / "docs" / "reference" / "faults.md"
_KEPT, _BROKEN, _OPEN, _NONE = "✓", "✗", "…", "-"
_UNITS = {
    "pause_s": "longest pause {} s",
    "others_pause_s": "longest pause of others {} s",
    "fault_s": "the fault lasted {} s",
    "back_s": "recovered after {} s",
    "answered_s": "answered after {} s",
    "ended_after_s": "ended after {} s",
    "gone_s": "gone after {} s",
    "durable_items": "{} durable items, each there exactly once",
    "durable_rollouts": "{} durable rollouts, each there exactly once",
    "verdicts": "{} evaluations, all with their result",
    "requests_hit": "{} requests were affected",
    "parts_failed": "{} parts failed",
    "log_bytes": "{} bytes of logs were kept",
    "lines_shown": "{} lines were shown",
    "tests": "tests passed: {}",
    "said": "message: *{}*",
}


def page(told: dict[str, Any] | None = None) -> str:
    """The page, from results."""
    told = load() if told is None else told
    results, found = told["cells"], cells()
    dates = sorted({one["date"] for one in results.values()}) or ["never"]
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    parts = [
        "# Fault tolerance",
        "",
        "This page says what happens when something fails. Each cell of the table is a fault and its victim.",
        "`python -m tools.faults run` injects the faults into real processes, connections, disks and stores. It checks each",
        "promise (writers number their items, and every durable item must be there afterwards, exactly once and in order)",
        "and measures how long clients had to wait. `python -m tools.faults page` generates this page from the results.",
        f"Measured: {when}, {told.get('machine', '')}, seed {told.get('seed', '')}.",
        "",
        f"{_KEPT} the promise was kept; the number is the longest pause in seconds that clients saw, including the fault itself;"
        f" {_BROKEN} broken; {_OPEN} not measured yet; {_NONE} does not apply, for the reason given [below](#details).",
        "",
        "| fault | " + " | ".join(VICTIMS) + " |",
        "|---" * (len(VICTIMS) + 1) + "|",
    ]
    for fault, title in FAULTS.items():
        row = [_symbol(found[fault, victim], results.get(f"{fault}/{victim}")) for victim in VICTIMS]
        parts.append(f"| {title} | " + " | ".join(row) + " |")
    parts += ["", *_soak(), "## Details", ""]
    for fault, title in FAULTS.items():
        parts += [f"### {title[0].upper()}{title[1:]}", ""]
        parts += [
            _line((fault, victim), found[fault, victim], results.get(f"{fault}/{victim}"))
            for victim in VICTIMS
        ]
        parts.append("")
    return "\n".join(parts).rstrip() + "\n"


def _soak() -> list[str]:
    """What the last soak saw."""
    if not SOAK.exists():
        return []
    told = json.loads(SOAK.read_text())
    lines = [
        "## Soak test",
        "",
        "`python -m tools.faults soak` runs two data planes (actors, a replay shard, a learner, a parameter server, a",
        "policy server, an evaluator) under random faults. In the first, any process may be killed or replaced; in the",
        f"second, all processes run until the end. The last soak, on {told['date']}, took {told['minutes']:g} minutes with "
        f"seed {told['seed']}: "
        + ("every promise was kept." if not told["failures"] else "**not every promise was kept**."),
        "",
    ]
    for name in ("killed", "lasting"):
        if name in told:
            one = told[name]
            faults = ", ".join(f"{kind} {count}" for kind, count in one["faults"].items())
            durable = one["replay"]["promised"] + one["learner"]["promised"]
            pauses = ", ".join(f"{what} {seconds:.1f}" for what, seconds in one["longest pauses, s"].items())
            pauses = pauses.replace("verdicts", "evaluations")
            lines += [
                f"- **{name}**: {sum(one['faults'].values())} faults ({faults}); {one['restarts']} restarts;"
                f" {durable:,} items were durable, and none was lost or duplicated;"
                f" longest pauses in seconds: {pauses}.",
            ]
    lines += [
        "",
        "| process | memory in the first quarter, MB | in the last quarter, MB | open files, first and last |",
        "|---|---|---|---|",
    ]
    for name, one in told["memory"].items():
        files = f"{one['first files']:g}, {one['last files']:g}"
        lines.append(f"| {name} | {one['first MB']} | {one['last MB']} | {files} |")
    return [*lines, ""]


def _symbol(cell: Cell, result: dict[str, Any] | None) -> str:
    if cell.why_not:
        return _NONE
    if result is None:
        return _OPEN
    if not result["ok"]:
        return _BROKEN
    pause = result["measured"].get("pause_s", result["measured"].get("back_s"))
    return _KEPT if pause is None else f"{_KEPT} {pause:.1f}"


def _line(key: Key, cell: Cell, result: dict[str, Any] | None) -> str:
    head = f"- **{key[1]}**: "
    if cell.why_not:
        return head + f"does not apply. {cell.why_not}"
    text = head + cell.promise
    if cell.tests:
        text += " Test: " + ", ".join(f"`{test.rpartition('::')[2] or test}`" for test in cell.tests) + "."
    if result is None:
        return text + " Not measured yet."
    if not result["ok"]:
        return text + f" **Broken**: {_plain(result['failure'])}"
    seen = [_UNITS[name].format(_number(value)) for name, value in result["measured"].items()]
    return text + f" Measured: {'; '.join(seen)}."


def _number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else _plain(str(value))


def _plain(text: str) -> str:
    """One line without anything that Markdown would take for its own."""
    return " ".join(text.replace("*", "").replace("`", "'").replace("|", "/").split())[:300]


def write() -> Path:
    """Write it; where."""
    PAGE.write_text(page())
    return PAGE
