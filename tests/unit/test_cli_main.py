"""The entry point of the command line: help, mistakes, exit codes, what is imported when."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median

import click
import pytest

from callsheet.backends import base
from callsheet.cli.main import VERBS, call, cli
from callsheet.errors import InvalidExperiment, Problem, RetryError, UserError


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(name: str) -> base.Backend:
        raise error

    monkeypatch.setattr(base, "backend", fail)


@pytest.mark.parametrize("verb", [[], *([verb] for verb in VERBS)], ids=["group", *VERBS])
def test_help_comes_without_the_heavy_libraries(verb: list[str]) -> None:
    script = (
        "import sys; from callsheet.cli.main import call; code = call(sys.argv[1:]);"
        "heavy = {'pydantic', 'rich', 'yaml', 'asyncio'} & set(sys.modules);"
        "sys.exit(f'imported {heavy}' if heavy else code)"
    )
    done = subprocess.run([sys.executable, "-c", script, *verb, "--help"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Usage: callsheet" in done.stdout


@pytest.mark.exclusive
@pytest.mark.parametrize("verb", [[], ["run"], ["logs"]], ids=["group", "run", "logs"])
def test_help_takes_little_longer_than_importing_click(verb: list[str]) -> None:
    def cpu_seconds(*arguments: str) -> float:
        before = getrusage(RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
        after = getrusage(RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    # In turns, and in processor time: what else the machine does slows both alike.
    pairs = [
        (cpu_seconds("-m", "callsheet", *verb, "--help"), cpu_seconds("-c", "import click")) for _ in range(9)
    ]
    ours, click_alone = (median(times) for times in zip(*pairs, strict=True))
    assert ours < 2.5 * click_alone


@pytest.mark.parametrize("verb", VERBS)
def test_the_summary_of_a_verb_is_the_first_sentence_of_its_help(verb: str) -> None:
    command = cli.get_command(click.Context(cli), verb)
    assert command is not None
    assert command.help is not None
    assert command.help.split("\n\n")[0].split(". ")[0].removesuffix(".") == VERBS[verb].removesuffix(".")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("stauts", "status"),
        ("log", "logs"),
        ("ls", "ps"),
        ("apply", "run"),
        ("rm", "delete"),
        ("-V", "version"),
    ],
)
def test_a_mistyped_verb_gets_a_suggestion(
    typed: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call([typed]) == 2
    shown = capsys.readouterr()
    assert f"callsheet {meant}" in shown.err
    assert shown.out == ""


def test_a_mistyped_option_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["logs", "--tial", "5"]) == 2
    assert "--tail" in capsys.readouterr().err


def test_an_option_of_the_executed_command_needs_the_two_dashes(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["exec", "run", "actor/0", "ls", "-l"]) == 2
    assert "write -- before the command" in capsys.readouterr().err


def test_a_users_mistake_is_one_sentence_and_its_fix(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(monkeypatch, UserError("there is no run 'x'", fix="see `callsheet ps`"))
    assert call(["status", "x"]) == 2
    shown = capsys.readouterr()
    assert shown.err == "error: there is no run 'x'\n  fix: see `callsheet ps`\n"
    assert shown.out == ""


def test_every_mistake_of_a_file_is_printed_with_its_place(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    problems = [
        Problem("spec.roles[actor].replicas", "'many' is not a number", "write 3", "x.yaml", 9, 15),
        Problem("spec.imaeg", "there is no such key", "did you mean image?", "x.yaml", 4, 3),
    ]
    failing(monkeypatch, InvalidExperiment(problems))
    assert call(["status"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "x.yaml:4:3: spec.imaeg: there is no such key",
        "    fix: did you mean image?",
        "x.yaml:9:15: spec.roles[actor].replicas: 'many' is not a number",
        "    fix: write 3",
        "error: 2 mistakes in the experiment.",
    ]


@pytest.mark.parametrize(
    ("error", "code"), [(RetryError("not now"), 1), (KeyboardInterrupt(), 130), (BrokenPipeError(), 141)]
)
def test_each_kind_of_end_has_its_exit_code(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.dup2", lambda *_: 0)
    failing(monkeypatch, error)
    assert call(["ps"]) == code


def test_a_bug_is_one_sentence_that_asks_for_a_report(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(monkeypatch, KeyError("oops"))
    assert call(["ps"]) == 70
    shown = capsys.readouterr().err
    assert "KeyError: 'oops'" in shown
    assert "report it with the output of CALLSHEET_DEBUG=1" in shown
    assert "Traceback" not in shown

    monkeypatch.setenv("CALLSHEET_DEBUG", "1")
    assert call(["ps"]) == 70
    assert "Traceback" in capsys.readouterr().err


def test_the_backend_may_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def note(name: str) -> base.Backend:
        asked.append(name)
        raise UserError("enough")

    monkeypatch.setattr(base, "backend", note)
    monkeypatch.setenv("CALLSHEET_ON", "local")
    assert call(["ps"]) == 2
    assert asked == ["local"]
    monkeypatch.setenv("CALLSHEET_ON", "moon")
    assert call(["ps"]) == 2
    assert "'moon'" in capsys.readouterr().err
    assert asked == ["local"]


def test_version_is_an_option_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["--version"]) == 0
    shown = capsys.readouterr().out
    assert call(["version"]) == 0
    assert shown == capsys.readouterr().out


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux has a device that is always full")
@pytest.mark.parametrize("arguments", [["version"], ["--help"], ["ps", "-o", "json"]], ids=" ".join)
def test_output_that_cannot_be_written_is_told_plainly(arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "callsheet", *arguments], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-2:] == [
        "error: cannot write the output: No space left on device",
        "  fix: free some space, or write it somewhere else",
    ]


def test_version_as_data(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["version", "-o", "json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {"callsheet", "apiVersion", "python", "system"}


def test_schema_is_json_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["schema"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["type"] == "object"
    assert shown.err == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["completion", shell]) == 0
    assert "_CALLSHEET_COMPLETE" in capsys.readouterr().out


def test_windows_is_refused_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.platform", "win32")
    assert call(["version"]) == 2
    assert "WSL 2" in capsys.readouterr().err
