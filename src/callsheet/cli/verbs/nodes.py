"""`callsheet nodes`: list the cluster's nodes, with what you need to write a node selector."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from callsheet.cli import options, output

if TYPE_CHECKING:
    from callsheet.backends.cluster import Node

_HEADER = ("NODE", "READY", "CPU", "MEMORY", "GPUS FREE", "TAINTS", "LABELS")


@click.command()
@options.on_cluster
@options.form("json", "yaml", "name")
def command(form: str | None) -> None:
    """List the cluster's nodes with labels, taints and free GPUs.

    Use the labels in `nodeSelector` and the taints in `tolerations`.
    """
    nodes = options.cluster().nodes()
    if form in ("json", "yaml"):
        output.answer(output.structured([asdict(node) for node in nodes], form))
    elif form == "name":
        output.answer("\n".join(node.name for node in nodes))
    else:
        output.answer(output.table(_HEADER, [_row(node) for node in nodes], cut=False))


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
