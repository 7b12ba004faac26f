"""`callsheet diff`: what a run of the files would change in the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from callsheet import contract
from callsheet.cli import options, output

if TYPE_CHECKING:
    from callsheet.backends.kubernetes.apply import Change
    from callsheet.backends.kubernetes.backend import KubernetesBackend
    from callsheet.plan.load import Loaded

_STYLES = {"+": "green", "-": "red", "@": "cyan"}
_WORDS = {
    "create": "would be made",
    "change": "would be changed",
    "replace": "would be replaced: its pods start anew",
    "delete": "would be deleted",
}


@click.command()
@options.files
@options.on_cluster
@options.form("json", "yaml", "name")
def command(files: tuple[str, ...], sets: tuple[str, ...], form: str | None) -> int:
    """Show what `callsheet run` would change in the cluster, with nothing changed; the API server is asked.

    The exit code is 0 when nothing would change and 1 when something would.
    """
    found = changes(options.cluster(), options.load(files, sets))
    show(found, form)
    return contract.EXIT_FAILED if found else contract.EXIT_OK


def changes(backend: KubernetesBackend, loaded: Sequence[Loaded]) -> list[Change]:
    """What running the files would do to the cluster."""
    found: list[Change] = []
    for item in loaded:
        with item.placing():
            planned = backend.changes(item.experiment, base=item.base)
        found += [change for change in planned if change.action != "keep"]
    return found


def show(found: Sequence[Change], form: str | None) -> None:
    """Print changes as a person or a program wants them."""
    from callsheet.backends.kubernetes.diff import lines

    if form in ("json", "yaml"):
        data = [{"action": c.action, "kind": c.kind, "name": c.name} for c in found]
        output.answer(output.structured(data, form))
    elif form == "name":
        output.answer("\n".join(f"{c.kind}/{c.name}" for c in found)) if found else None
    else:
        for change in found:
            output.say(f"{change.kind}/{change.name} {_WORDS[change.action]}", "bold")
            if change.action in ("change", "replace"):
                for line in lines(change):
                    output.answer(output.paint(line, _STYLES.get(line[0], "")))
        if not found:
            output.say("Nothing would change.")
