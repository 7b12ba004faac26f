"""`callsheet nodes`: the machines of the cluster, with what one needs to write a selector."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from callsheet.cli import options, output

if TYPE_CHECKING:
    from callsheet.backends.kubernetes.observe.cluster import Node

_HEADER = ("NODE", "READY", "CPU", "MEMORY", "GPUS FREE", "TAINTS", "LABELS")


@click.command()
@options.on_cluster
@options.form("json", "yaml", "name")
def command(form: str | None) -> None:
    """List the cluster's nodes: labels for `nodeSelector`, taints for `tolerations`, GPUs that are free."""
    from callsheet.backends.kubernetes.observe.cluster import nodes

    found = nodes(options.cluster().api)
    if form in ("json", "yaml"):
        output.answer(output.structured([asdict(node) for node in found], form))
    elif form == "name":
        output.answer("\n".join(node.name for node in found))
    else:
        output.answer(output.table(_HEADER, [_row(node) for node in found], cut=False))


def _row(node: Node) -> tuple[str, ...]:
    free = "?" if node.gpus_used is None else str(node.gpus - node.gpus_used)
    return (
        node.name,
        "yes" if node.ready else "no",
        node.cpu,
        node.memory,
        f"{free}/{node.gpus}" if node.gpus else "-",
        ",".join(node.taints) or "-",
        ",".join(f"{key}={value}" for key, value in node.labels.items()) or "-",
    )
