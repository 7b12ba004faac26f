"""Runs the cells of the matrix, by seed, and keeps what was measured."""

from __future__ import annotations

import contextlib
import datetime
import fnmatch
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tools.faults import s3server
from tools.faults.matrix import Cell, Key, cells
from tools.faults.measures import Setting
from tools.faults.plane import ROOT

RESULTS = Path(__file__).parent / "results.json"
Result = dict[str, Any]


def load() -> dict[str, Any]:
    """What was measured last, by cell."""
    return dict(json.loads(RESULTS.read_text())) if RESULTS.exists() else {"cells": {}}


def run(seed: int, only: str, minutes: float) -> int:
    """Run the cells whose `FAULT/VICTIM` fits; how many broke their promise."""
    chosen = {
        key: cell
        for key, cell in cells().items()
        if not cell.why_not and fnmatch.fnmatch("/".join(key), only)
    }
    order = list(chosen)
    random.Random(seed).shuffle(order)  # noqa: S311 - must be repeatable
    until = time.monotonic() + minutes * 60
    told = load()
    version = platform.release().partition("-")[0]
    told |= {"seed": seed, "machine": f"{os.cpu_count()} cores, {platform.system()} {version}"}
    broken = 0
    with _server() as s3:
        for key in order:
            if time.monotonic() > until:
                break
            if chosen[key].measure is not None:
                broken += _keep(told, key, _measured(key, chosen[key], seed, s3))
    for which in (False, True):
        some = {key: cell for key, cell in chosen.items() if cell.tests and cell.cluster is which}
        if some and time.monotonic() < until:
            for key, result in _tested(some).items():
                broken += _keep(told, key, result)
    return broken


def _keep(told: dict[str, Any], key: Key, result: Result) -> int:
    result["date"] = datetime.date.today().isoformat()
    told["cells"]["/".join(key)] = result
    told["cells"] = dict(sorted(told["cells"].items()))
    RESULTS.write_text(json.dumps(told, indent=1, sort_keys=True) + "\n")
    print("/".join(key), "kept" if result["ok"] else "BROKEN", json.dumps(result), flush=True)
    return not result["ok"]


def measure(key: Key, cell: Cell, seed: int, s3: Any, folder: Path) -> Result:
    """One cell that is measured here; raises when its promise is broken."""
    assert cell.measure is not None
    begun = time.monotonic()
    seen = cell.measure(Setting(key[1], folder, seed, s3))
    return {"ok": True, "seconds": round(time.monotonic() - begun, 1), "measured": seen}


def _measured(key: Key, cell: Cell, seed: int, s3: Any) -> Result:
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="callsheet-faults-", ignore_cleanup_errors=True) as folder:
        try:
            return measure(key, cell, seed, s3, Path(folder))
        except Exception as error:  # noqa: BLE001 - the others are worth a look too
            failure = f"{type(error).__name__}: {error}"[-2000:]
            return {"ok": False, "seconds": round(time.monotonic() - begun, 1), "failure": failure}


def _tested(some: dict[Key, Cell]) -> dict[Key, Result]:
    """Run the tests that cells name, each once, and give each cell what became of its own."""
    tests = sorted({test for cell in some.values() for test in cell.tests})
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            f"--junitxml={report}",
            *tests,
        ]
        subprocess.run(command, cwd=ROOT, check=False, stdout=sys.stderr)
        found = _outcomes(report)
    return {key: _of_tests(cell.tests, found) for key, cell in some.items()}


def _outcomes(report: Path) -> list[tuple[str, bool, float]]:
    """Test, whether it passed, and how long it took."""
    if not report.exists():
        return []
    found = []
    for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314 - pytest wrote it
        file = case.get("classname", "").replace(".", "/") + ".py"
        passed = not any(case.find(word) is not None for word in ("failure", "error", "skipped"))
        name = case.get("name", "").partition("[")[0]
        found.append((f"{file}::{name}", passed, float(case.get("time", "0"))))
    return found


def _of_tests(tests: tuple[str, ...], found: list[tuple[str, bool, float]]) -> Result:
    mine = [one for one in found if one[0] in tests or one[0].partition("::")[0] in tests]
    ok = bool(mine) and all(passed for _, passed, _ in mine)
    covered = all(any(test in (one[0], one[0].partition("::")[0]) for one in mine) for test in tests)
    seconds = round(sum(one[2] for one in mine), 1)
    if ok and covered:
        return {"ok": True, "seconds": seconds, "measured": {"tests": len(mine)}}
    failed = sorted({one[0] for one in mine if not one[1]}) or ["a test did not run"]
    return {"ok": False, "seconds": seconds, "failure": ", ".join(failed)}


@contextlib.contextmanager
def _server() -> Iterator[Any]:
    """An S3 server for all cells, started by the first that needs it."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))

        @cache
        def get() -> s3server.S3Server:
            return stack.enter_context(s3server.serving(Path(folder, "s3")))

        yield get
