"""`callsheet doctor`: check that the cluster has everything a run needs."""

from __future__ import annotations

from dataclasses import asdict

import click

from callsheet import contract
from callsheet.cli import options, output


@click.command()
@click.option(
    "--role", is_flag=True, help="Print the Role with the permissions you need, without asking the cluster."
)
@options.on_cluster
@options.form("json", "yaml")
def command(role: bool, form: str | None) -> int:
    """Check that the cluster has everything a run needs.

    It checks the version, your credentials and permissions, DNS, nodes and GPUs. The exit code is 1 if something is
    missing that a run needs.

    \b
    callsheet doctor --role | kubectl apply -n team -f -     # for the cluster's administrator
    """
    backend = options.cluster()
    if role:
        output.answer(output.structured(backend.role_manifest(), "yaml"))
        return contract.EXIT_OK
    findings = []
    for finding in backend.examine():
        findings.append(finding)
        if form is None:
            mark, style = (
                ("ok", "green") if finding.good else ("NO", "error") if finding.needed else ("--", "yellow")
            )
            output.answer(f"{output.paint(mark, style)}  {finding.what}: {finding.said}")
            if finding.fix and not finding.good:
                output.answer(f"      {finding.fix}")
    if form:
        output.answer(output.structured([asdict(finding) for finding in findings], form))
    return contract.EXIT_OK if all(f.good or not f.needed for f in findings) else contract.EXIT_FAILED
