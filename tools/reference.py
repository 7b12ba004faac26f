"""Writes the reference pages that come from the code: `make docs`. A test asserts that they are current.

Whoever adds a field, a verb, an option or a variable documents it where it is declared, and nowhere else.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import click
import msgspec
from msgspec.structs import FieldInfo

from callsheet import contract
from callsheet.cli.main import SECTIONS
from callsheet.cli.training.report import field_docs
from callsheet.metrics import wellknown
from callsheet.rl.algorithms import ALGORITHMS
from callsheet.rl.nets.network import Network
from callsheet.rl.settings import Checkpoints, Evaluation, Stop, Training
from callsheet.rl.spaces import Family
from callsheet.spec.schema import reference as experiment_page

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference"
MADE = "`make docs` generates this page from the code."

WORDS = {
    "experiment": "the experiment's name",
    "run": "the run's id",
    "role": "the role's name",
    "index": "the replica's index, from 0",
    "container": "the container's name",
    "replicas": "the number of replicas when this one starts",
    "storage": "where this run's results go, as a URL",
}
ENDPOINT_WORDS = {
    "addr": "`host:port` to connect to, as in `CALLSHEET_<ENDPOINT>_ADDR`",
    "host": "the host of that address",
    "port": "the port of that address",
    "bind": "`host:port` to listen on; only in the container that binds the endpoint",
    "all": "every address, comma-separated, in index order",
    "any": "one address that stands for any of them: a Service on Kubernetes, the same as `addr` on a laptop",
}


def pages() -> dict[Path, str]:
    """Every generated page by its path."""
    made: dict[str, Callable[[], str]] = {
        "experiment.md": experiment_page,
        "cli.md": cli_page,
        "environment.md": environment_page,
        "metrics.md": metrics_page,
        "algorithms.md": algorithms_page,
    }
    return {FOLDER / name: make() for name, make in made.items()}


def cli_page() -> str:
    """Every verb with its arguments and options."""
    parts = ["# The command line", ""]
    parts += [
        "`callsheet COMMAND --help` shows the same. With `-o json` or `-o yaml`, standard output has the answer and nothing",
        "else; progress and hints go to standard error. `NO_COLOR` is respected, and output is plain text unless it goes to",
        "a terminal. `CALLSHEET_DEBUG=1` shows the traceback behind an error. See also [exit",
        f"codes](environment.md#exit-codes). {MADE}",
    ]
    for title, verbs in SECTIONS.items():
        parts += ["", f"## {title}"]
        for verb in verbs:
            parts += ["", *_verb(verb)]
    return "\n".join(parts) + "\n"


def _verb(verb: str) -> Iterator[str]:
    command: click.Command = importlib.import_module(f"callsheet.cli.verbs.{verb.replace('-', '_')}").command
    context = click.Context(command, info_name=f"callsheet {verb}", show_default=True)
    yield f"### callsheet {verb}"
    yield ""
    yield f"```text\n{' '.join([context.command_path, *command.collect_usage_pieces(context)])}\n```"
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        yield ""
        # click's mark for lines that stay as they are: examples.
        verbatim = paragraph.startswith("\b\n")
        yield f"```text\n{paragraph.removeprefix(chr(8)).strip()}\n```" if verbatim else paragraph
    options = [param for param in command.params if isinstance(param, click.Option)]
    records = [record for option in options if (record := option.get_help_record(context))]
    if records:
        yield ""
        yield "| option | meaning |"
        yield "|---|---|"
        yield from (f"| {_code(option)} | {_cell(meaning)} |" for option, meaning in records)


def _code(text: str) -> str:
    return f"`{_cell(text)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def environment_page() -> str:
    """Every name that crosses a process boundary."""
    said = _docstrings()
    parts = ["# Environment, placeholders and exit codes", ""]
    parts += [
        "Every name that a process gets from Callsheet. [The process contract](../concepts/contract.md) shows how to use them.",
        MADE,
        "",
        "## Variables for every process",
        "",
        "| variable | meaning |",
        "|---|---|",
    ]
    parts += [
        f"| `{value}` | {said[name]} |"
        for name, value in vars(contract).items()
        if isinstance(value, str) and (value.startswith(contract.PREFIX) and value != contract.PREFIX)
    ]
    parts.append(f"| `{contract.GPUS}` | {said['GPUS']} |")
    parts += ["", "## Variables for each endpoint", ""]
    parts += [
        "Set for every endpoint that the container binds, exposes or connects to. The endpoint's name is in uppercase, with",
        f"`_` for `-`: `replay-server` becomes `{contract.endpoint_variable('replay-server', contract.ENDPOINT_ADDR)}`.",
        "",
        "| variable | meaning |",
        "|---|---|",
    ]
    parts += [
        f"| `CALLSHEET_<ENDPOINT>_{value}` | {said[name]} |"
        for name, value in vars(contract).items()
        if name.startswith("ENDPOINT_") and isinstance(value, str)
    ]
    parts += ["", "## Placeholders", ""]
    parts += [
        "For `command`, `args` and the values of `env`. Other braces stay as they are; `{{index}}` produces a literal `{index}`.",
        "",
        "| placeholder | value |",
        "|---|---|",
        *(f"| `{{{word}}}` | {WORDS[word]} |" for word in contract.WORDS),
        *(f"| `{{ENDPOINT.{word}}}` | {ENDPOINT_WORDS[word]} |" for word in contract.ENDPOINT_WORDS),
        f"| `{{{contract.FILES}.NAME}}` | the path of the file `NAME` in `spec.files` |",
        f"| `{{{contract.MOUNTS}.NAME}}` | the path where this container sees the volume `NAME` |",
        "",
        "## Exit codes",
        "",
        "`callsheet run` and the other commands use these codes. If a replica makes a run fail, `callsheet run` exits with the",
        "replica's own code, or with 128 + n if signal n ended it.",
        "",
        "| code | meaning |",
        "|---|---|",
    ]
    parts += [
        f"| {value} | {said[name]} |" for name, value in vars(contract).items() if name.startswith("EXIT_")
    ]
    return "\n".join(parts) + "\n"


def metrics_page() -> str:
    """The page as it is written by hand, with the tables of well-known metrics at its end."""
    written = (FOLDER / "metrics.md").read_text(encoding="utf-8")
    title = "## Well-known metrics"
    parts = [written.partition(title)[0] + title, ""]
    parts += [
        "What Callsheet's own programs record, from `callsheet.metrics.wellknown`. Prometheus adds `_total` to a counter's",
        "name. *Shown* is its name in `callsheet status` and in the live view. `make docs` generates these tables from the code.",
    ]
    for title, definitions in wellknown.groups().items():
        parts += [
            "",
            f"### {title.rstrip('.')}",
            "",
            "| metric | kind | labels | shown | meaning |",
            "|---|---|---|---|---|",
        ]
        parts += [
            f"| `{d.full_name}` | {d.kind} | {', '.join(d.labels)} | {d.shown} | {_cell(d.help)} |"
            for d in definitions
        ]
    return "\n".join(parts) + "\n"


def algorithms_page() -> str:
    """Every setting of a training and of each algorithm, with the defaults of each family of environments."""
    parts = ["# Algorithms and their settings", ""]
    parts += [
        "Run an algorithm with `callsheet train ALGORITHM --env ENV`; see [how to train](../how-to/train.md). Change a setting with",
        "`--set NAME=VALUE`, such as `--set learning_rate=0.001` or `--set network.lstm=128`. `--settings` prints the settings for",
        "your environment. Some defaults differ between kinds of environments: Gymnasium's classic ones, Atari, MuJoCo, and",
        f"all others. {MADE}",
    ]
    for one in ALGORITHMS.values():
        module = importlib.import_module(f"callsheet.rl.algorithms.{one.name}")
        config = importlib.import_module(f"callsheet.rl.algorithms.{one.name}.config")
        usual = {family: config.defaults(family) for family in get_args(Family)}
        parts += ["", f"## {one.name}", "", inspect.cleandoc(str(module.__doc__)), ""]
        parts += _settings_table(one.config, usual)
    parts += ["", "## The network", "", "Settings of every algorithm, as `network.NAME`.", ""]
    parts += _settings_table(Network, {"other": Network()})
    parts += ["", "## The training file", ""]
    parts += [
        "The remaining fields of the file that `--render` prints. Options of `callsheet train` set them.",
        "",
    ]
    parts += ["| field | default | meaning |", "|---|---|---|"]
    for above, kind in (
        ("", Training),
        ("stop.", Stop),
        ("evaluation.", Evaluation),
        ("checkpoints.", Checkpoints),
    ):
        parts += [
            f"| `{above}{field.name}` | {_default(field)} | {_cell(text)} |"
            for field, text in _documented_fields(kind)
        ]
    return "\n".join(parts) + "\n"


def _settings_table(kind: type[msgspec.Struct], usual: dict[str, msgspec.Struct]) -> Iterator[str]:
    yield "| setting | default | meaning |"
    yield "|---|---|---|"
    for field, text in _documented_fields(kind):
        values = {family: getattr(config, field.name) for family, config in usual.items()}
        if not any(isinstance(value, msgspec.Struct) for value in values.values()):
            yield f"| `{field.name}` | {_by_family(values)} | {_cell(text)} |"


def _documented_fields(kind: type[msgspec.Struct]) -> Iterator[tuple[FieldInfo, str]]:
    said = field_docs(kind)
    for field in msgspec.structs.fields(kind):
        if field.name in said:
            yield field, said[field.name]


def _by_family(values: dict[str, Any]) -> str:
    """The others' default, and those that differ from it."""
    shown = {family: f"`{msgspec.json.encode(value).decode()}`" for family, value in values.items()}
    others = shown["other"]
    return "; ".join([others, *(f"{family} {value}" for family, value in shown.items() if value != others)])


def _default(field: FieldInfo) -> str:
    if field.required:
        return ""
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    return f"`{msgspec.json.encode(value).decode()}`"


def _docstrings() -> dict[str, str]:
    """The text below each constant of the contract, which Python itself does not keep."""
    body = ast.parse(inspect.getsource(contract)).body
    found: dict[str, str] = {}
    for statement, after in itertools.pairwise(body):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            found[statement.target.id] = " ".join(str(after.value.value).split()).replace("``", "`")
    return found


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path}")
