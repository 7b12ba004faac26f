"""The entry point: it imports a verb only when it is used, and turns errors into exit codes."""

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
        "render": "Print what a backend would run, as YAML.",
        "schema": "Print the JSON schema of experiment files.",
        "convert": "Convert a DIJob into an experiment file.",
    },
    "Run": {
        "train": "Train a policy with a built-in algorithm or your own.",
        "run": "Run experiments and follow them until they end.",
        "attach": "Reattach to a running experiment.",
        "join": "Start one more replica of a role in this terminal.",
        "scale": "Change the number of replicas of elastic roles.",
        "restart": "Restart replicas gracefully.",
        "stop": "Stop runs gracefully.",
        "delete": "Delete finished runs with their results and logs.",
    },
    "Inspect": {
        "ps": "List runs.",
        "status": "Show the state of a run, its roles and its replicas.",
        "logs": "Print the logs of replicas.",
        "metrics": "Print the newest metrics of replicas.",
        "plot": "Draw the learning curves of trainings.",
        "evaluate": "Play episodes with a trained policy and print their returns.",
        "exec": "Run a command with a replica's environment.",
    },
    "Cluster": {
        "doctor": "Check that the cluster has everything a run needs.",
        "nodes": "List the cluster's nodes with labels, taints and free GPUs.",
        "diff": "Show what a run would change in the cluster.",
        "keys": "Create the key of an experiment applied with kubectl.",
        "crd": "Print the CustomResourceDefinition of the kind Experiment.",
        "events": "Show the Kubernetes events of a run.",
        "cp": "Copy files to and from a replica.",
        "port-forward": "Forward local ports to replicas.",
    },
    "Other": {
        "completion": "Print a completion script for your shell.",
        "version": "Print the version.",
    },
}
"""Every verb by section, with the first sentence of its help."""
VERBS = {verb: summary for section in SECTIONS.values() for verb, summary in section.items()}

_OTHER_TOOLS = {
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


_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of writing to an open stream."""


class Group(click.Group):
    """Knows the name and summary of every verb, and imports its module when it is called."""

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
            ctx.fail(f"no such command: {args[0]!r}.{_suggest(args[0])}")
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
    verb = _OTHER_TOOLS.get(word) or nearest(word, VERBS, cutoff=0.5)
    return f" Did you mean `callsheet {verb}`?" if verb else ""


def _version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        verb = cli.get_command(ctx, "version")
        assert verb is not None
        ctx.invoke(verb, form=None)
        ctx.exit()


@click.command(
    cls=Group,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    no_args_is_help=True,
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Print the version."
)
def cli() -> None:
    """Run distributed RL experiments, on this machine or on Kubernetes.

    Start with `callsheet init`, which writes a small working experiment.
    """


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its exit code."""
    sys.exit(call(sys.argv[1:] if args is None else args))


def call(args: Sequence[str]) -> int:
    """Run the command line; returns the exit code."""
    if sys.platform == "win32":
        sys.stderr.write("Callsheet does not run on Windows; use WSL 2.\n")
        return contract.EXIT_MISTAKE
    output.prepare_streams()
    try:
        code = _dispatch(list(args))
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (`| head`) is gone. Python must not try to write the rest at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (KeyboardInterrupt, click.exceptions.Abort):
        return contract.EXIT_INTERRUPTED
    except OSError as error:
        return _unwritable(error)
    return code


def _unwritable(error: OSError) -> int:
    """Report that the output could not be written, if stderr still works."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    with contextlib.suppress(OSError):
        output.complain(
            f"cannot write the output: {error.strerror}", "free some space, or write it somewhere else"
        )
    return contract.EXIT_FAILED


def _dispatch(args: list[str]) -> int:
    instruction = os.environ.get("_CALLSHEET_COMPLETE")
    if instruction:
        from click.shell_completion import shell_complete

        return shell_complete(cli, {}, "callsheet", "_CALLSHEET_COMPLETE", instruction)
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
    except Exception as error:  # whatever it is, the user gets one sentence
        if isinstance(error, OSError) and error.errno in _UNWRITABLE and error.filename is None:
            raise
        _report(BugError(f"internal error: {type(error).__name__}: {error}"))
        return BugError.exit_code


def _hint(mistake: click.NoSuchOption) -> None:
    if mistake.option_name in _OTHER_TOOLS:
        output.say(_suggest(mistake.option_name).strip())
    elif mistake.ctx and mistake.ctx.info_name in ("exec", "join"):
        output.say(f"If {mistake.option_name} belongs to the command, write -- before the command.")


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
        output.complain(error.message, error.fix or "please report it with the output of CALLSHEET_DEBUG=1")
    else:
        output.complain(error.message, error.fix)
