"""`callsheet port-forward`: reach a replica's port from this machine."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import click

from callsheet.backends import base
from callsheet.cli import options, output, selection
from callsheet.errors import UserError

if TYPE_CHECKING:
    from callsheet.backends.kubernetes.run import KubernetesRun


@click.command()
@options.on_cluster
@options.run()
@click.argument("ports", metavar="[ENDPOINT[=PORT] | ROLE/INDEX:PORT[=PORT]]...", nargs=-1)
def command(run: str, ports: tuple[str, ...]) -> None:
    """Bring ports of replicas to this machine, by endpoint or by replica and port, until Ctrl-C.

    \b
    callsheet port-forward cartpole                  # every exposed endpoint
    callsheet port-forward cartpole tensorboard      # one of them
    callsheet port-forward cartpole actor/2:8080     # any port of a replica
    callsheet port-forward cartpole tensorboard=7000 # as port 7000 of this machine

    A replica that gets a new pod is reached again by the next connection.
    """
    found = options.cluster().find(run)
    wanted = [_parse(found, text) for text in ports] or _exposed(found)
    rows = []
    for target, remote, local in wanted:
        selection.check_target(found.status(), target)
        forward = found.forward(target, remote, local, output.say)
        rows.append((f"127.0.0.1:{forward.local}", f"{target.role}/{target.index}:{remote}"))
    output.answer("\n".join(f"{here} -> {there}" for here, there in rows))
    output.say("Ctrl-C ends it; the run goes on.", "dim")
    signal.pause()


def _exposed(run: KubernetesRun) -> list[tuple[base.Target, int, int | None]]:
    known = run.endpoints()
    names = list(run.status().exposed)
    if not names:
        raise UserError(
            f"the run {run.id} exposes nothing",
            fix=f"name what to reach: {', '.join(known) or 'ROLE/INDEX:PORT'}",
        )
    return [(base.Target(known[name][0], 0), known[name][1], None) for name in names]


def _parse(run: KubernetesRun, text: str) -> tuple[base.Target, int, int | None]:
    name, _, here = text.partition("=")
    if here and not here.isdecimal():
        raise UserError(f"{here!r} is no port of this machine", fix=f"write for example {name}=8080")
    local = int(here) if here else None
    known = run.endpoints()
    if name in known:
        role, port = known[name]
        return base.Target(role, 0), port, local
    where, colon, port_text = name.rpartition(":")
    if not colon or not port_text.isdecimal():
        raise UserError(
            f"{name!r} is neither an endpoint nor ROLE/INDEX:PORT",
            fix=f"the endpoints are: {', '.join(known) or 'none'}",
        )
    target = base.Target.parse(where)
    return base.Target(target.role, target.index or 0), int(port_text), local
