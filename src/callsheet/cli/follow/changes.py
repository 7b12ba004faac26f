"""What changed between two statuses of a run, as messages. Pure, so that every screen says the same."""

from __future__ import annotations

import re
from dataclasses import dataclass

from callsheet.backends.base import ReplicaStatus, Status

_MAX_NAMED = 3
"""Up to this many replicas are named; more are counted."""
_AMOUNT = re.compile(r"(?<![/\w])\d[\d,.]*")
"""A number that is not part of a name: a warning is shown once, even if its amount grows."""


@dataclass(frozen=True, slots=True)
class Message:
    """One sentence."""

    text: str
    style: str = ""


def describe_changes(before: Status | None, after: Status) -> list[Message]:
    """The messages, most general first."""
    messages: list[Message] = []
    if after.phase != (before.phase if before else "Pending") and not after.done:
        messages.append(Message(after.phase.lower(), "bold"))
    known = {_AMOUNT.sub("", warning) for warning in before.warnings} if before else set()
    messages += [
        Message(f"warning: {warning}", "yellow")
        for warning in after.warnings
        if _AMOUNT.sub("", warning) not in known
    ]
    sizes = {role.name: role.wanted for role in before.roles} if before else {}
    messages += [
        Message(f"{role.name} scaled from {sizes[role.name]} to {role.wanted}")
        for role in after.roles
        if sizes.get(role.name, role.wanted) != role.wanted
    ]
    return messages + _replicas(before, after)


def _replicas(before: Status | None, after: Status) -> list[Message]:
    """Equal changes of several replicas of a role become one message."""
    previous = {replica.name: replica for replica in before.replicas} if before else {}
    grouped: dict[tuple[str, str, str], list[str]] = {}
    for replica in after.replicas:
        change, style = _replica(previous.get(replica.name), replica)
        if change:
            grouped.setdefault((replica.role, change, style), []).append(replica.name)
        for name, change in _containers(previous.get(replica.name), replica):
            key = (f"{name} of {replica.role}", change, "yellow")
            grouped.setdefault(key, []).append(f"{replica.name}/{name}")
    messages = []
    for (role, change, style), names in grouped.items():
        who = ", ".join(names) if len(names) <= _MAX_NAMED else f"{role}: {len(names)} replicas"
        messages.append(Message(f"{who} {change}", style))
    return messages


def _replica(before: ReplicaStatus | None, after: ReplicaStatus) -> tuple[str, str]:
    """What changed about one replica, and its color."""
    ended = before is None or before.phase != after.phase
    if ended and after.phase == "Failed":
        return f"failed: {after.reason}" if after.reason else "failed", "red"
    if ended and after.phase == "Succeeded":
        return "finished", "green"
    attempt = before.attempt if before else 0
    if after.attempt > attempt:
        return f"restarted{' and ready' if after.ready else ''} (attempt {after.attempt})", "yellow"
    if before is not None and _failures(after) > _failures(before):
        return (
            f"ended and will be restarted: {after.reason}" if after.reason else "will be restarted",
            "yellow",
        )
    started = after.started > 0 and (before is None or before.started == 0)
    ready = after.ready and (before is None or not before.ready)
    if started or ready:
        joined = " (joined manually)" if after.joined and started else ""
        return " and ".join(
            word for word, applies in (("started", started), ("ready", ready)) if applies
        ) + joined, "dim"
    if before is not None and before.ready and not after.ready and after.phase == "Running":
        return f"is no longer ready: {after.reason}" if after.reason else "is no longer ready", "yellow"
    return "", ""


def _containers(before: ReplicaStatus | None, after: ReplicaStatus) -> list[tuple[str, str]]:
    """Containers of a group that ended while the others keep running; a restart of the whole replica is reported apart."""
    if before is None or len(after.containers) < 2 or after.attempt > before.attempt:
        return []
    restarts = {container.name: container.restarts for container in before.containers}
    return [
        (c.name, f"ended{_ending(c.exit_code)}, to be restarted (restart {c.restarts})")
        for c in after.containers
        if c.restarts > restarts.get(c.name, c.restarts)
    ]


def _ending(code: int | None) -> str:
    """Empty if it runs again already: its exit code is then no longer known."""
    if code is None:
        return ""
    return f" by signal {-code}" if code < 0 else f" with exit code {code}"


def _failures(replica: ReplicaStatus) -> int:
    """Restarts of the replica as a whole; those of a group's containers are reported apart."""
    group = replica.containers if len(replica.containers) > 1 else []
    return replica.restarts - sum(container.restarts for container in group)
