"""`callsheet plan`: show every replica with its address and command."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from callsheet.cli import options, output

if TYPE_CHECKING:
    from callsheet.plan.model import Plan, Replica, RolePlan

_SHOWN = 3
"""Replicas per role in the short table."""


@click.command()
@options.files
@options.on
@options.form("json", "yaml", "wide", "name")
def command(files: tuple[str, ...], sets: tuple[str, ...], on: str, form: str | None) -> None:
    """Show every replica with its address and command.

    Nothing is started. The table shows the first replicas of each role; `-o wide` shows all of them, with their
    environment.
    """
    backend = options.backend(on)
    plans = []
    for item in options.load(files, sets):
        with item.placing():
            plans.append(backend.plan(item.experiment, base=item.base))
    if form in ("json", "yaml"):
        # One experiment is one object; several are a list.
        data = [plan.to_data() for plan in plans]
        output.answer(output.structured(data[0] if len(data) == 1 else data, form))
        return
    for number, plan in enumerate(plans):
        if form == "name":
            output.answer(
                "\n".join(
                    f"{plan.experiment}/{role.name}/{r.index}" for role in plan.roles for r in role.replicas
                )
            )
            continue
        if number:
            output.answer("")
        output.answer(f"experiment {plan.experiment}, in {output.short_path(plan.workdir)}")
        output.answer(_wide(plan) if form == "wide" else _short(plan))


def _short(plan: Plan) -> str:
    rows = []
    for role in plan.roles:
        for replica in role.replicas[:_SHOWN]:
            rows += [(name, replica.host, command) for name, command in _containers(role, replica)]
        if len(role.replicas) > _SHOWN:
            rows.append((f"{role.name}/…", "", f"{len(role.replicas) - _SHOWN} more; see -o wide"))
    return output.table(("REPLICA", "ADDRESS", "COMMAND"), rows)


def _wide(plan: Plan) -> str:
    blocks = []
    for role in plan.roles:
        for replica in role.replicas:
            for position, (name, command) in enumerate(_containers(role, replica)):
                environment = plan.environment(role, replica, position)
                refs = {
                    ref.variable: f"({ref.source} {ref.name})" for ref in role.containers[position].env_refs
                }
                lines = [f"{output.paint(name, 'bold')}  {replica.host}  {command}"]
                lines += [f"    {key}={value}" for key, value in sorted((environment | refs).items())]
                blocks.append("\n".join(lines))
    return "\n".join(blocks)


def _containers(role: RolePlan, replica: Replica) -> Iterator[tuple[str, str]]:
    """Each container of a replica: its name, as other verbs take it, and its command, quoted for a shell."""
    for container, own in zip(role.containers, replica.containers, strict=True):
        name = f"{role.name}/{replica.index}"
        yield name if len(role.containers) == 1 else f"{name}/{container.name}", shlex.join(own.command)
