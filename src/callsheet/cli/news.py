"""What happened between two moments of a run, in words: pure, so that the screen and the plain view agree."""

from __future__ import annotations

import re
from dataclasses import dataclass

from callsheet.backends.base import ReplicaStatus, Status

_NAMED = 3
"""So many replicas are named one by one; more are counted."""
_AMOUNT = re.compile(r"(?<![/\w])\d[\d,.]*")
"""A number that is not part of a name: a warning whose amount grows is told once."""


@dataclass(frozen=True, slots=True)
class Event:
    """One sentence."""

    text: str
    style: str = ""


def events(before: Status | None, after: Status) -> list[Event]:
    """The sentences, most general first."""
    found: list[Event] = []
    if after.phase != (before.phase if before else "Pending") and not after.done:
        found.append(Event(after.phase.lower(), "bold"))
    told = {_AMOUNT.sub("", warning) for warning in before.warnings} if before else set()
    found += [
        Event(f"warning: {warning}", "yellow")
        for warning in after.warnings
        if _AMOUNT.sub("", warning) not in told
    ]
    sizes = {role.name: role.wanted for role in before.roles} if before else {}
    found += [
        Event(f"{role.name} scaled from {sizes[role.name]} to {role.wanted}")
        for role in after.roles
        if sizes.get(role.name, role.wanted) != role.wanted
    ]
    return found + _replicas(before, after)


def _replicas(before: Status | None, after: Status) -> list[Event]:
    """Equal news of several replicas of a role become one sentence."""
    then = {replica.name: replica for replica in before.replicas} if before else {}
    grouped: dict[tuple[str, str, str], list[str]] = {}
    for replica in after.replicas:
        news, style = _news(then.get(replica.name), replica)
        if news:
            grouped.setdefault((replica.role, news, style), []).append(replica.name)
        for name, news in _containers(then.get(replica.name), replica):
            key = (f"{name} of {replica.role}", news, "yellow")
            grouped.setdefault(key, []).append(f"{replica.name}/{name}")
    sentences = []
    for (role, news, style), names in grouped.items():
        who = ", ".join(names) if len(names) <= _NAMED else f"{role}: {len(names)} replicas"
        sentences.append(Event(f"{who} {news}", style))
    return sentences


def _news(before: ReplicaStatus | None, after: ReplicaStatus) -> tuple[str, str]:
    """What is new about one replica, and how it is colored."""
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
        joined = " (joined by hand)" if after.joined and started else ""
        return " and ".join(
            word for word, said in (("started", started), ("ready", ready)) if said
        ) + joined, "dim"
    if before is not None and before.ready and not after.ready and after.phase == "Running":
        return f"is no longer ready: {after.reason}" if after.reason else "is no longer ready", "yellow"
    return "", ""


def _containers(before: ReplicaStatus | None, after: ReplicaStatus) -> list[tuple[str, str]]:
    """Containers of a group that ended and come back while the others go on; a whole replica has its own news."""
    if before is None or len(after.containers) < 2 or after.attempt > before.attempt:
        return []
    restarts = {container.name: container.restarts for container in before.containers}
    return [
        (c.name, f"ended{_how(c.exit_code)}, to be restarted (restart {c.restarts})")
        for c in after.containers
        if c.restarts > restarts.get(c.name, c.restarts)
    ]


def _how(code: int | None) -> str:
    """Empty when it runs again already: how it ended is then no longer told."""
    if code is None:
        return ""
    return f" by signal {-code}" if code < 0 else f" with exit code {code}"


def _failures(replica: ReplicaStatus) -> int:
    """Restarts of the replica as a whole; those of a group's containers are told by themselves."""
    group = replica.containers if len(replica.containers) > 1 else []
    return replica.restarts - sum(container.restarts for container in group)
