"""What a person sees of metrics: `callsheet status`, the live view, `callsheet metrics`."""

from __future__ import annotations

import io
import json
import time

import pytest
from fake_backend import FakeBackend, FakeRun, replica, status
from rich.console import Console

from callsheet.backends import base
from callsheet.backends.base import LogLine
from callsheet.cli import formatting
from callsheet.cli.follow import role_metrics
from callsheet.cli.follow.live_view import LiveScreen, view
from callsheet.cli.follow.log_lines import Prefixes
from callsheet.cli.follow.screen import FollowedRun
from callsheet.cli.main import call
from callsheet.metrics.reader import ProcessMetrics
from callsheet.metrics.reader import ShownMetric as Number

RUN = "bandit-2"


def exported(role: str, index: int, *shown: tuple[str, float, str, str], **more) -> ProcessMetrics:
    items = [{"name": name, "value": value, "unit": unit, "merge": way} for name, value, unit, way in shown]
    return ProcessMetrics(role, index, role, more.pop("time", time.time()), shown=items, **more)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> FakeRun:
    """A learner and two actors that export, and a role that does not."""
    made = FakeRun(
        status(
            RUN,
            "Running",
            replica("learner", 0),
            replica("actor", 0),
            replica("actor", 1),
            replica("quiet", 0),
        )
    )
    made.exported = [
        exported("learner", 0, ("updates", 12.5, "/s", "sum"), ("waiting", 0.25, "share", "mean")),
        exported(
            "actor",
            0,
            ("steps", 5200.0, "/s", "sum"),
            ("return", 190.0, "", "mean"),
            metrics={
                "acting_steps": 123_456,
                "waiting_seconds": 12.5,
                "lag": {"count": 40, "sum": 60.0, "buckets": {"2": 40}},
                "loss": None,
            },
            rates={"acting_steps": 5200.0, "waiting_seconds": 0.1},
            recent={"lag": {"p50": 1.5, "p99": 1.98}},
        ),
        exported("actor", 1, ("steps", 4800.0, "/s", "sum"), ("return", 200.0, "", "mean")),
    ]
    monkeypatch.setattr(base, "backend", lambda name: FakeBackend(made))
    return made


@pytest.mark.usefixtures("run")
def test_status_shows_a_roles_numbers_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["status"]) == 0
    lines = capsys.readouterr().out.splitlines()
    header = next(line for line in lines if line.startswith("ROLE"))
    assert header.split()[-1] == "METRICS"
    actor, learner, quiet = (
        next(line for line in lines if line.startswith(f"{n} ")) for n in ("actor", "learner", "quiet")
    )
    assert actor.endswith("steps 10k/s  return 195")
    assert learner.endswith("updates 12.5/s  waiting 25%")
    assert quiet.split() == ["quiet", "1/1", "0", "0", "0"]


@pytest.mark.usefixtures("run")
def test_status_as_data_has_the_numbers_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["status", "-o", "json"]) == 0
    data = json.loads(capsys.readouterr().out)["metrics"]
    assert data["actor"] == {
        "steps": {"value": 10_000.0, "unit": "/s"},
        "return": {"value": 195.0, "unit": ""},
    }


def test_status_of_a_run_that_exports_nothing_is_as_it_was(
    run: FakeRun, capsys: pytest.CaptureFixture[str]
) -> None:
    run.exported = []
    assert call(["status"]) == 0
    assert "METRICS" not in capsys.readouterr().out
    assert call(["status", "-o", "json"]) == 0
    assert "metrics" not in json.loads(capsys.readouterr().out)


def test_looks_are_a_small_part_of_the_time_and_one_that_hung_does_not_put_off_the_next() -> None:
    assert [role_metrics.pause_after(took) for took in (0.01, 2.0, 60.0)] == [2.0, 10.0, 30.0]


def test_numbers_of_a_process_that_has_ended_count_only_when_the_run_has(
    run: FakeRun, capsys: pytest.CaptureFixture[str]
) -> None:
    run.exported = [exported("learner", 0, ("updates", 9.0, "/s", "sum"), last=True)]
    assert call(["status"]) == 0
    assert "updates" not in capsys.readouterr().out
    run.states.append(status(RUN, "Succeeded", replica("learner", 0, "Succeeded"), exit_code=0))
    assert call(["status"]) == 0
    assert "updates 9/s" in capsys.readouterr().out


@pytest.mark.usefixtures("run")
def test_metrics_prints_every_value_of_the_chosen_replica(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["metrics", RUN, "actor/0"]) == 0
    header, *rows = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    assert header[0] == "REPLICA"
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    assert cells == [
        ["actor/0", "acting_steps", "123k", "5200/s", "-", "-"],
        ["actor/0", "waiting_seconds", "12.5 s", "10%", "-", "-"],
        ["actor/0", "lag", "40", "-", "1.5", "1.98"],
        ["actor/0", "loss", "-", "-", "-", "-"],
    ]


@pytest.mark.usefixtures("run")
def test_metrics_as_data_and_of_the_newest_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["metrics", "actor", "-o", "json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [(item["role"], item["index"]) for item in data] == [("actor", 0), ("actor", 1)]
    assert data[0]["rates"]["acting_steps"] == 5200.0


def test_metrics_says_when_there_are_none_and_when_they_are_old(
    run: FakeRun, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["metrics", RUN, "quiet", "-o", "json"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out) == []
    assert "none of these processes exports any" in shown.err
    assert call(["metrics", RUN, "nobody"]) == 2
    assert "has no role 'nobody'" in capsys.readouterr().err
    run.exported = [exported("actor", 0, time=time.time() - 300, metrics={"steps": 1})]
    assert call(["metrics", RUN]) == 0
    assert "1 of these processes no longer report; their oldest values are 5m old" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, "", "0"),
        (0.00123456, "", "0.00123"),
        (195.4, "", "195"),
        (9999, "", "9999"),
        (12_345, "/s", "12.3k/s"),
        (4_560_000, "", "4.56M"),
        (-4.5e9, "", "-4.5G"),
        (1536, "bytes", "1.5 KiB"),
        (3 * 1024**2, "bytes/s", "3.0 MiB/s"),
        (0.034, "share", "3%"),
        (0.000_25, "seconds", "250 µs"),
        (0.25, "seconds", "250 ms"),
        (2, "seconds", "2 s"),
        (3700, "seconds", "1h1m"),
        (3, "steps", "3 steps"),
    ],
)
def test_numbers_are_written_short(value: float, unit: str, text: str) -> None:
    assert formatting.quantity(value, unit) == text


@pytest.mark.parametrize("width", [80, 140])
def test_the_live_view_shows_numbers_before_the_last_line(run: FakeRun, width: int) -> None:
    state = run.status()
    found = {"actor": [Number("steps", 10_000.0, "/s"), Number("return", 195.0)]}
    last = {name: LogLine(name, 0, name, "said " * 50) for name in ("actor", "quiet")}
    item = FollowedRun(
        run=run, prefixes=Prefixes(state), status=state, received=time.monotonic(), metrics=found, last=last
    )
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(view([item]))
    assert isinstance(console.file, io.StringIO)
    lines = [line.rstrip() for line in console.file.getvalue().splitlines()]
    assert all(len(line) <= width for line in lines)
    assert lines[1].endswith("METRICS, LAST LINE")
    actor, quiet = (next(line for line in lines if line.startswith(name)) for name in ("actor", "quiet"))
    assert "steps 10k/s  return 195  0: said" in actor
    assert actor.endswith("…")
    assert "  said said" in quiet


def test_the_live_view_reads_numbers_beside_the_screen(run: FakeRun) -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=True, color_system=None)
    state = run.status()
    item = FollowedRun(run=run, prefixes=Prefixes(state), status=state, received=time.monotonic())
    screen = LiveScreen(console)
    try:
        limit = time.monotonic() + 10
        while not item.metrics and time.monotonic() < limit:
            screen.refresh([item])
    finally:
        screen.close()
    assert [number.name for number in item.metrics["actor"]] == ["steps", "return"]
