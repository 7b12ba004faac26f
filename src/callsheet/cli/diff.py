"""`callsheet diff`: what a run of the files would change in the cluster."""

from __future__ import annotations

import click

from callsheet import contract
from callsheet.cli import options, output

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
    from callsheet.backends.kubernetes.differences import lines

    backend = options.cluster()
    found = []
    for item in options.load(files, sets):
        with item.placing():
            changes = backend.changes(item.experiment, base=item.base)
        found += [change for change in changes if change.action != "keep"]
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
    return contract.EXIT_FAILED if found else contract.EXIT_OK
