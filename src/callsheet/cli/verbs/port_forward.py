"""`callsheet port-forward`: forward local ports to replicas."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import click

from callsheet.backends import base
from callsheet.cli import options, output, selection
from callsheet.errors import UserError

if TYPE_CHECKING:
    from callsheet.backends.cluster import ClusterRun


@click.command()
@options.on_cluster
@options.run()
@click.argument("ports", metavar="[ENDPOINT[=PORT] | ROLE/INDEX:PORT[=PORT]]...", nargs=-1)
def command(run: str, ports: tuple[str, ...]) -> None:
    """Forward local ports to replicas.

    Forwarding continues until Ctrl-C.

    \b
    callsheet port-forward cartpole                  # every exposed endpoint
    callsheet port-forward cartpole tensorboard      # one endpoint
    callsheet port-forward cartpole actor/2:8080     # any port of a replica
    callsheet port-forward cartpole tensorboard=7000 # choose the local port

    If a replica gets a new pod, new connections go to that pod.
    """
    chosen = options.cluster().find(run)
    wanted = [_parse(chosen, text) for text in ports] or _exposed(chosen)
    lines = []
    for target, remote, local in wanted:
        selection.check_target(chosen.status(), target)
        forwarded = chosen.forward(target, remote, local, output.say)
        lines.append(f"127.0.0.1:{forwarded.local} -> {target.role}/{target.index}:{remote}")
    output.answer("\n".join(lines))
    output.say("Press Ctrl-C to stop forwarding; the run keeps running.", "dim")
    signal.pause()


def _exposed(run: ClusterRun) -> list[tuple[base.Target, int, int | None]]:
    known = run.endpoints()
    names = list(run.status().exposed)
    if not names:
        raise UserError(
            f"run {run.id} exposes no endpoint",
            fix=f"name one to forward: {', '.join(known) or 'ROLE/INDEX:PORT'}",
        )
    return [(base.Target(known[name][0], 0), known[name][1], None) for name in names]


def _parse(run: ClusterRun, text: str) -> tuple[base.Target, int, int | None]:
    name, _, local_text = text.partition("=")
    if local_text and not local_text.isdecimal():
        raise UserError(f"{local_text!r} is not a local port", fix=f"write for example {name}=8080")
    local = int(local_text) if local_text else None
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
