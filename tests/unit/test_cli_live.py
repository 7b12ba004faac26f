"""The live view, and the loop that follows runs."""

from __future__ import annotations

import io
import time

import pytest
from fake_backend import FakeRun, replica, status
from rich.console import Console

from callsheet.backends.base import LogLine
from callsheet.backends.status import Status
from callsheet.cli.follow.follower import Follower
from callsheet.cli.follow.live_view import LiveScreen, view
from callsheet.cli.follow.log_lines import Prefixes
from callsheet.cli.follow.screen import FollowedRun, PlainScreen
from callsheet.cli.follow.usage import Usage
from callsheet.errors import RetryError


def shown(state: Status, **more) -> FollowedRun:
    return FollowedRun(
        run=FakeRun(state), prefixes=Prefixes(state), status=state, received=time.monotonic(), **more
    )


def drawn(item: FollowedRun, width: int, lines: int = 100) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(view([item], lines))
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


@pytest.mark.parametrize("width", [60, 80, 140])
def test_the_view_fits_the_screen_and_cuts_only_the_last_line(width: int) -> None:
    state = status(
        "r-1", "Running", replica("learner", 0), replica("actor", 0), exposed={"board": "127.0.0.2:6006"}
    )
    last = {"learner": LogLine("learner", 0, "learner", "loss\t" + "0.123 " * 50)}
    lines = drawn(shown(state, last=last, usage={"learner": Usage(1.25, 3 * 1024**3)}), width)
    assert len(lines) == 4
    assert all(len(line) <= width for line in lines)
    assert lines[0].startswith("─── bandit  r-1  Running  1m  board 127.0.0.2:6006"[:width])
    assert lines[1].split() == ["ROLE", "READY", "RESTARTS", "CPU", "MEM", "UPTIME", "LAST", "LINE"]
    assert lines[2].split()[:6] == ["learner", "1/1", "0", "1.2", "3.0", "GiB"]
    assert lines[2].endswith("…")


def test_the_view_says_why_a_replica_is_not_ready() -> None:
    state = status(
        "r", "Starting", replica("learner", 0, "Starting", ready=False, reason="port 9 does not listen")
    )
    assert drawn(shown(state), 80)[-1] == "learner/0: port 9 does not listen"


def test_many_roles_leave_room_for_the_log() -> None:
    state = status("r", "Running", *(replica(f"role{i}", 0) for i in range(20)))
    lines = drawn(shown(state), 80, lines=12)
    assert len(lines) == 12
    assert lines[-1] == "and 11 more roles; see `callsheet status`"


def test_a_hostile_line_reaches_the_screen_without_its_sting() -> None:
    state = status("r", "Running", replica("actor", 0))
    console = Console(
        file=io.StringIO(), width=80, force_terminal=True, color_system="standard", no_color=False
    )
    screen = LiveScreen(console)
    item = shown(state)
    screen.refresh([item])
    screen.lines(
        [(item, LogLine("actor", 0, "actor", "\x1b[2J\x1b[999B[bold]no markup[/bold] :smile: \x1b[31mred"))]
    )
    screen.close()
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "[bold]no markup[/bold] :smile: \x1b[31mred\x1b[0m\n" in text
    assert "\x1b[2J" not in text
    assert "\x1b[999B" not in text


def test_what_breaks_a_reader_is_reported_and_not_waited_for() -> None:
    class Broken(FakeRun):
        def watch(self, interval: float = 0.5):
            yield self.states[0]
            raise RetryError("the cluster does not answer")

    run = Broken(status("r", "Running"))
    out = io.StringIO()
    with pytest.raises(RetryError, match="does not answer"):
        Follower([run], PlainScreen(out), grace=1.0).follow()


def test_lines_and_states_are_shown_until_the_end() -> None:
    lines = [LogLine("actor", 0, "actor", f"line {n}") for n in range(3)]
    run = FakeRun(status("r", "Running"), status("r", "Succeeded", exit_code=0), lines=lines)
    out = io.StringIO()
    (ended,) = Follower([run], PlainScreen(out), grace=1.0).follow()
    assert ended.phase == "Succeeded"
    assert out.getvalue() == "actor/0 | line 0\nactor/0 | line 1\nactor/0 | line 2\n"
