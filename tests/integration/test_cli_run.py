"""`callsheet run` in the foreground, with real processes: what is printed where, signals, exit codes."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from callsheet.cli.main import call

CALLSHEET = [sys.executable, "-m", "callsheet"]
PATIENCE = 90.0

FOREVER = "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done"


def experiment(name: str, **roles: str) -> str:
    """An experiment whose roles are one-line shell programs."""
    lines = [
        "apiVersion: callsheet.dev/v1alpha1",
        "kind: Experiment",
        f"metadata: {{name: {name}}}",
        "spec:",
        "  roles:",
    ]
    for role, program in roles.items():
        lines += [f"  - name: {role}", f"    command: [sh, -c, {json.dumps(program)}]"]
        lines += ["    restart: {policy: Never}", "    terminationGracePeriod: 20s"]
    return "\n".join(lines) + "\n"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to work in, whose runs are ended in the end."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("NO_COLOR", raising=False)
    yield tmp_path
    call(["stop", "--all", "--now"])


def callsheet(*arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CALLSHEET, *arguments], input=given, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


class Started:
    """A command that runs, and what it has printed so far."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [*CALLSHEET, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.out: list[str] = []
        self.err: list[str] = []
        self._threads = [
            threading.Thread(target=lambda s=stream, t=target: t.extend(iter(s.readline, "")))
            for stream, target in ((self.process.stdout, self.out), (self.process.stderr, self.err))
        ]
        for thread in self._threads:
            thread.start()

    def wait_for(self, text: str) -> None:
        until(
            lambda: any(text in line for line in [*self.out, *self.err]), f"{text!r} in {self.out} {self.err}"
        )

    def end(self) -> int:
        code = self.process.wait(PATIENCE)
        for thread in self._threads:
            thread.join()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()
        return code


def until(condition: Callable[[], bool], what: str) -> None:
    limit = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < limit, f"waited for {what}"
        time.sleep(0.02)


def test_the_starter_runs_to_success(home: Path) -> None:
    assert callsheet("init", "first").returncode == 0
    again = callsheet("init", "first")
    assert again.returncode == 2
    assert "already has experiment.yaml" in again.stderr
    file = home / "first" / "experiment.yaml"
    file.write_text(file.read_text().replace('"2000"', '"800"'))
    done = callsheet("run", "-f", str(file))
    assert done.returncode == 0, done.stderr
    assert "learner/0 | done: machine 3 pays best" in done.stdout
    assert "actor/1 | actor 1 of 2 has found the learner" in done.stdout
    assert "bandit Succeeded" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr


def test_lines_go_to_stdout_and_events_to_stderr(home: Path) -> None:
    (home / "x.yaml").write_text(experiment("x", worker="printf 'one\\n\\033[31mred\\033[2J\\n'"))
    done = callsheet("run", "-f", "x.yaml")
    assert done.returncode == 0
    assert done.stdout == "worker/0 | one\nworker/0 | red\n"
    assert "callsheet: worker/0 finished" in done.stderr
    run = re.search(r"run (\w+), results in (\S+)", done.stderr)
    assert run is not None
    assert (home / run[2] / "status.json").exists()


def test_the_exit_code_is_the_experiments_and_the_last_words_are_shown(home: Path) -> None:
    (home / "x.yaml").write_text(experiment("x", worker="echo about to fail; echo the reason >&2; exit 7"))
    done = callsheet("run", "-f", "x.yaml")
    assert done.returncode == 7
    assert "x Failed" in done.stderr
    assert "│ the reason" in done.stderr


def test_with_o_json_stdout_holds_the_outcome_and_nothing_else(home: Path) -> None:
    (home / "x.yaml").write_text(experiment("x", worker="echo hello; exit 3"))
    done = callsheet("run", "-f", "x.yaml", "-o", "json")
    outcome = json.loads(done.stdout)
    assert (outcome["phase"], outcome["exit_code"], done.returncode) == ("Failed", 3, 3)
    assert "worker/0 | hello" in done.stderr


def test_several_experiments_run_together_and_the_first_failure_decides(home: Path) -> None:
    files = experiment("good", worker="echo fine") + "---\n" + experiment("bad", worker="echo oh; exit 5")
    done = callsheet("run", "-f", "-", given=files)
    assert done.returncode == 5
    assert {"good/worker/0 | fine", "bad/worker/0 | oh"} <= set(done.stdout.splitlines())
    assert "good Succeeded" in done.stderr
    assert "bad Failed" in done.stderr


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)],
    ids=lambda v: str(v),
)
def test_a_signal_stops_the_run_gracefully(home: Path, number: signal.Signals, code: int) -> None:
    (home / "x.yaml").write_text(experiment("x", worker=FOREVER))
    run = Started("run", "-f", "x.yaml")
    run.wait_for("worker/0 | up")
    run.process.send_signal(number)
    assert run.end() == code
    assert "worker/0 | bye\n" in run.out
    assert "callsheet: stopping (up to 20s); press Ctrl-C again to kill\n" in run.err


def test_a_second_ctrl_c_kills(home: Path) -> None:
    (home / "x.yaml").write_text(
        experiment("x", worker="trap 'echo no' TERM; echo up; while :; do sleep 0.05; done")
    )
    run = Started("run", "-f", "x.yaml")
    run.wait_for("worker/0 | up")
    run.process.send_signal(signal.SIGINT)
    run.wait_for("worker/0 | no")
    start = time.monotonic()
    run.process.send_signal(signal.SIGINT)
    assert run.end() == 130
    assert time.monotonic() - start < 10
    assert "callsheet: killing\n" in run.err


def test_when_the_reader_of_a_pipe_goes_away_the_run_is_stopped(home: Path) -> None:
    (home / "x.yaml").write_text(experiment("x", worker="while echo line; do sleep 0.02; done"))
    run = subprocess.Popen(
        [*CALLSHEET, "run", "-f", "x.yaml"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert run.stdout is not None
    assert run.stdout.readline() == b"worker/0 | line\n"
    run.stdout.close()
    _, said = run.communicate(timeout=PATIENCE)
    assert run.returncode == 143
    assert b"Traceback" not in said
    assert json.loads(callsheet("ps", "-a", "-o", "json").stdout)[0]["phase"] == "Stopped"


def test_a_flood_is_thinned_out_and_counted_and_the_log_has_it_all(home: Path) -> None:
    (home / "x.yaml").write_text(experiment("x", flood="seq 1 20000", calm="echo calm"))
    done = callsheet("run", "-f", "x.yaml")
    shown = [line for line in done.stdout.splitlines() if line.startswith("flood/0")]
    skipped = sum(
        int(n.replace(",", "")) for n in re.findall(r"flood/0: ([\d,]+) lines? not shown", done.stderr)
    )
    assert len(shown) + skipped == 20000
    assert skipped > 0
    assert "calm/0 | calm" in done.stdout
    assert callsheet("logs", "x", "flood").stdout.splitlines() == [str(n) for n in range(1, 20001)]


@pytest.mark.parametrize("verb", ["run", "validate", "plan", "render"])
def test_mistakes_stop_it_before_anything_starts(
    home: Path, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "x.yaml").write_text(experiment("x", worker="true").replace("command:", "comand:"))
    assert call([verb, "-f", "x.yaml"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert re.search(r"^x\.yaml:7:\d+: spec\.roles\[worker\]\.comand: ", shown.err, re.MULTILINE)
    assert "did you mean" in shown.err
    assert not (home / "runs").exists()


def test_several_experiments_start_together_or_not_at_all(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = experiment("b", worker="true").replace("[sh, -c", "[no-such-program, -c")
    (home / "x.yaml").write_text(
        "---\n".join([experiment("a", worker=FOREVER), wrong, wrong.replace("b}", "c}")])
    )
    assert call(["run", "-f", "x.yaml"]) == 2
    said = capsys.readouterr().err
    assert "x.yaml:17:14: spec.roles[worker].command: there is no program 'no-such-program' on PATH" in said
    assert "x.yaml:27:14: spec.roles[worker].command" in said
    assert "2 mistakes" in said
    assert call(["ps", "-a", "-o", "name"]) == 0
    assert capsys.readouterr().out.strip() == ""
    assert not (home / "runs").exists()


def test_mistakes_come_as_data_too(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "x.yaml").write_text(experiment("x", worker="true").replace("command:", "comand:"))
    assert call(["validate", "-f", "x.yaml", "-o", "json"]) == 2
    report = json.loads(capsys.readouterr().out)
    assert not report["valid"]
    assert report["problems"][0]["line"] == 7


def on_terminal(
    *arguments: str, keys: tuple[str, list[str]] = ("", []), columns: int = 100
) -> tuple[str, int]:
    """What a person sees, and the exit code; the keys are typed once all of the texts have appeared."""
    typed, texts = keys
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS=str(columns), LINES="24")
        os.execv(sys.executable, [*CALLSHEET, *arguments])
    shown = b""
    limit = time.monotonic() + PATIENCE
    while time.monotonic() < limit:
        if not select.select([terminal], [], [], 0.1)[0]:
            continue
        try:
            shown += os.read(terminal, 65536)
        except OSError:
            break
        if typed and all(text.encode() in shown for text in texts):
            os.write(terminal, typed.encode())
            typed = ""
    _, state = os.waitpid(pid, 0)
    os.close(terminal)
    return shown.decode(), os.waitstatus_to_exitcode(state)


def test_a_terminal_gets_the_live_view_and_ctrl_c_works_there(home: Path) -> None:
    (home / "x.yaml").write_text(experiment("x", worker=FOREVER))
    shown, code = on_terminal("run", "-f", "x.yaml", keys=("\x03", ["LAST LINE", "\x1b[0mup"]))
    assert code == 130
    for text in ("ROLE", "READY", "RESTARTS", "CPU", "MEM", "UPTIME", "stopping (up to 20s)", "Stopped"):
        assert text in shown
    assert re.search(r"\x1b\[36mworker/0 │ \x1b\[0mup", shown)
    assert shown.rstrip().splitlines()[-1].startswith("  run ")
    assert shown.endswith("\n")
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l"), "the cursor is visible again"


def test_no_color_is_respected_on_a_terminal(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    (home / "x.yaml").write_text(experiment("x", worker="printf '\\033[31mred\\033[0m\\n'; sleep 0.5"))
    shown, code = on_terminal("run", "-f", "x.yaml")
    assert code == 0
    assert "worker/0 │ red" in shown
    assert not re.search(r"\x1b\[[0-9;]*3[0-9][0-9;]*m", shown)


def test_delete_asks_a_person_first(home: Path) -> None:
    (home / "x.yaml").write_text(experiment("x", worker="true"))
    assert callsheet("run", "-f", "x.yaml").returncode == 0
    shown, code = on_terminal("delete", "x", keys=("n\n", ["Permanently delete"]))
    assert "Nothing was deleted." in shown
    assert code == 1
    assert (home / "runs" / "x").exists()
    shown, code = on_terminal("delete", "x", keys=("y\n", ["Permanently delete"]))
    assert "Deleted 1 run" in shown
    assert code == 0
    assert not (home / "runs" / "x").exists()


def test_a_dry_run_checks_everything_and_starts_nothing(home: Path) -> None:
    (home / "x.yaml").write_text(experiment("x", worker=FOREVER))
    done = callsheet("run", "-f", "x.yaml", "--dry-run")
    assert done.returncode == 0
    assert "Experiment/x would be created: 1 worker" in done.stderr
    assert not (home / "runs").exists()
    refused = callsheet("run", "-f", "x.yaml", "--dry-run", "--set", "roles.worker.command=[nope-nope]")
    assert refused.returncode == 2
    assert "there is no program 'nope-nope' on PATH" in refused.stderr
