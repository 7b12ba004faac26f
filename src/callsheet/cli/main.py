"""The door: a group that imports a verb only when it is used, and the one place where errors become exit codes."""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from callsheet import contract
from callsheet.cli import output
from callsheet.errors import BugError, CallsheetError, InvalidExperiment, nearest

SECTIONS: dict[str, dict[str, str]] = {
    "Write": {
        "init": "Write a small working experiment to start from.",
        "validate": "Check experiment files and report every mistake.",
        "plan": "Show every replica with its address and command.",
        "render": "Print what a backend would make of the files.",
        "schema": "Print the JSON schema of an experiment file.",
        "convert": "Turn a DIJob into an experiment file.",
    },
    "Run": {
        "train": "Train a policy with a built-in algorithm.",
        "run": "Run experiments and show them until they end.",
        "attach": "Take up a run again that goes on without you.",
        "join": "Start one more member of a role in this terminal.",
        "scale": "Change the number of replicas of elastic roles.",
        "restart": "Stop replicas and start them again.",
        "stop": "End runs gracefully.",
        "delete": "Remove finished runs with their results.",
    },
    "Look": {
        "ps": "List runs.",
        "status": "Show one run with its roles and replicas.",
        "logs": "Print the output of replicas.",
        "metrics": "Print the newest metrics of replicas.",
        "plot": "Draw the learning curves of trainings.",
        "evaluate": "Play episodes with a trained policy.",
        "exec": "Run a command with a replica's environment.",
    },
    "On a cluster": {
        "doctor": "Check that the cluster has all that a run needs.",
        "nodes": "List the cluster's nodes, labels and free GPUs.",
        "diff": "Show what a run would change in the cluster.",
        "keys": "Make the key of an experiment that kubectl applies.",
        "crd": "Print the CustomResourceDefinition of an experiment.",
        "events": "Show what the cluster noted about a run.",
        "cp": "Copy files to and from a replica.",
        "port-forward": "Reach a replica's port from this machine.",
    },
    "Other": {
        "completion": "Print the completion script of a shell.",
        "version": "Print the version.",
    },
}
VERBS = {verb: summary for section in SECTIONS.values() for verb, summary in section.items()}

_ELSEWHERE = {
    "apply": "run",
    "start": "run",
    "up": "run",
    "down": "stop",
    "kill": "stop",
    "get": "ps",
    "list": "ps",
    "ls": "ps",
    "describe": "status",
    "top": "status",
    "rm": "delete",
    "remove": "delete",
    "new": "init",
    "check": "validate",
    "lint": "validate",
    "template": "render",
    "help": "--help",
    "-V": "version",
}
"""What other tools call our verbs."""


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Why a stream that is open cannot take what is written to it."""


class Group(click.Group):
    """Knows every verb's name and summary by heart, and its code only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(
            f"callsheet.cli.verbs.{cmd_name.replace('-', '_')}"
        ).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in VERBS:
            ctx.fail(f"there is no verb {args[0]!r}.{_suggest(args[0])}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, verbs in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(verb.ljust(12), summary) for verb, summary in verbs.items()])

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        from click.shell_completion import CompletionItem

        return [
            CompletionItem(verb, help=text) for verb, text in VERBS.items() if verb.startswith(incomplete)
        ]


def _suggest(word: str) -> str:
    verb = _ELSEWHERE.get(word) or nearest(word, VERBS, cutoff=0.5)
    return f" Did you mean `callsheet {verb}`?" if verb else ""


def _version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        verb = cli.get_command(ctx, "version")
        assert verb is not None
        ctx.invoke(verb, form=None)
        ctx.exit()


@click.command(cls=Group, context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=True)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Print the version."
)
def cli() -> None:
    """One file describes an experiment; Callsheet runs it, here or on a cluster.

    `callsheet init` writes a first one.
    """


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and leave with its exit code."""
    sys.exit(call(sys.argv[1:] if args is None else args))


def call(args: Sequence[str]) -> int:
    """Run the command line; the exit code."""
    if sys.platform == "win32":
        sys.stderr.write("Callsheet does not run on Windows; use WSL 2, where it runs as on Linux.\n")
        return contract.EXIT_MISTAKE
    output.prepare_streams()
    try:
        code = _dispatch(list(args))
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (`| head`) has seen enough. Python must not try to write the rest when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (KeyboardInterrupt, click.exceptions.Abort):
        return contract.EXIT_INTERRUPTED
    except OSError as error:
        return _unwritable(error)
    return code


def _unwritable(error: OSError) -> int:
    """What was to be written did not arrive: say so, where that still works."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    with contextlib.suppress(OSError):
        output.complain(
            f"the output cannot be written: {error.strerror}", "make room there, or write it somewhere else"
        )
    return contract.EXIT_FAILED


def _dispatch(args: list[str]) -> int:
    wanted = os.environ.get("_CALLSHEET_COMPLETE")
    if wanted:
        from click.shell_completion import shell_complete

        return shell_complete(cli, {}, "callsheet", "_CALLSHEET_COMPLETE", wanted)
    try:
        with cli.make_context("callsheet", args) as ctx:
            code = cli.invoke(ctx)
            return code if isinstance(code, int) else contract.EXIT_OK
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except click.ClickException as mistake:
        mistake.show()
        if isinstance(mistake, click.NoSuchOption):
            _hint(mistake)
        return mistake.exit_code
    except CallsheetError as error:
        _report(error)
        return error.exit_code
    except (BrokenPipeError, click.exceptions.Abort):
        raise
    except Exception as error:  # the last resort: whatever it is, the user gets a sentence
        if isinstance(error, OSError) and error.errno in _NO_ROOM and error.filename is None:
            raise
        _report(BugError(f"Callsheet itself failed: {type(error).__name__}: {error}"))
        return BugError.exit_code


def _hint(mistake: click.NoSuchOption) -> None:
    if mistake.option_name in _ELSEWHERE:
        output.say(_suggest(mistake.option_name).strip())
    elif mistake.ctx and mistake.ctx.info_name in ("exec", "join"):
        output.say(
            f"An option of the command itself? Write -- before the command: -- ... {mistake.option_name}"
        )


def _report(error: CallsheetError) -> None:
    if os.environ.get("CALLSHEET_DEBUG"):
        import traceback

        output.say(traceback.format_exc().rstrip(), "dim")
    if isinstance(error, InvalidExperiment):
        for problem in error.problems:
            text = str(problem).removeprefix(problem.place)
            output.say(output.paint(problem.place, "bold", sys.stderr) + text)
        output.complain(f"{error.message}.")
    elif isinstance(error, BugError):
        output.complain(error.message, error.fix or "please report it with what CALLSHEET_DEBUG=1 prints")
    else:
        output.complain(error.message, error.fix)
