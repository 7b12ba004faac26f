"""`callsheet doctor`: whether all is there that a run in the cluster needs, before one is started."""

from __future__ import annotations

from dataclasses import asdict

import click

from callsheet import contract
from callsheet.cli import options, output


@click.command()
@click.option(
    "--role", is_flag=True, help="Print the Role with the rights that are needed, and ask no cluster."
)
@options.on_cluster
@options.form("json", "yaml")
def command(role: bool, form: str | None) -> int:
    """Check the cluster, your credentials and rights there, DNS, nodes and GPUs; 1 when something needed is missing.

    \b
    callsheet doctor --role | kubectl apply -n team -f -     # what the cluster's owner gives a user
    """
    if role:
        from callsheet.backends.kubernetes.rights import role as needed

        output.answer(output.structured(needed(), "yaml"))
        return contract.EXIT_OK
    from callsheet.backends.kubernetes.observe.cluster import examine

    backend = options.cluster()
    found = []
    for finding in examine(lambda: backend.api):
        found.append(finding)
        if form is None:
            mark, style = (
                ("ok", "green") if finding.good else ("NO", "error") if finding.needed else ("--", "yellow")
            )
            output.answer(f"{output.paint(mark, style)}  {finding.what}: {finding.said}")
            if finding.fix and not finding.good:
                output.answer(f"      {finding.fix}")
    if form:
        output.answer(output.structured([asdict(finding) for finding in found], form))
    return contract.EXIT_OK if all(f.good or not f.needed for f in found) else contract.EXIT_FAILED
