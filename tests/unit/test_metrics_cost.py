"""An update costs less than what it counts, and a program hardly notices the import."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import timeit
from pathlib import Path

import pytest

from callsheet.metrics import Registry

COUNT = 50_000


@pytest.mark.exclusive
def test_an_update_takes_a_few_hundred_nanoseconds_at_most() -> None:
    registry = Registry()
    counter, gauge = registry.counter("steps", "Steps."), registry.gauge("level", "Level.")
    histogram = registry.histogram("wait", "Waiting.", unit="seconds")
    took = {
        name: min(timeit.repeat(update, timer=time.thread_time, number=COUNT, repeat=9)) / COUNT * 1e9
        for name, update in (
            ("add", lambda: counter.add(3)),
            ("set", lambda: gauge.set(1.5)),
            ("observe", lambda: histogram.observe(0.003)),
        )
    }
    print(", ".join(f"{name} {each:.0f} ns" for name, each in took.items()))
    assert took["add"] < 300
    assert took["set"] < 300
    assert took["observe"] < 600


@pytest.mark.exclusive
def test_the_import_takes_less_than_ten_milliseconds(tmp_path: Path) -> None:
    """Of processor time, with compiled files, after what nearly every program has loaded."""
    code = (
        "import dataclasses, json, threading, time, callsheet.errors\n"
        "began = time.process_time()\n"
        "from callsheet.metrics import Exporter, Registry\n"
        "print(time.process_time() - began)"
    )
    env = os.environ | {"PYTHONPYCACHEPREFIX": str(tmp_path)}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    took = [
        float(subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True).stdout)
        for _ in range(20)
    ]
    print(f"{min(took) * 1e3:.1f} ms")
    assert min(took) < 0.010


def test_the_import_loads_neither_a_server_nor_any_package_from_elsewhere() -> None:
    code = (
        "import sys\n"
        "from callsheet.metrics import Exporter, Registry\n"
        "foreign = {n.partition('.')[0] for n in sys.modules} - sys.stdlib_module_names - {'callsheet', '__main__'}\n"
        "print(sorted(n for n in foreign if not n.startswith(('_', 'sitecustomize'))))\n"
        "print([n for n in ('http', 'logging', 'asyncio', 'email') if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env=os.environ | {"PYTHONPATH": src()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[]", "[]"]


def src() -> str:
    return str(Path(__file__).parents[2] / "src")
