"""Find the run, roles and replicas named on the command line, and report those that do not exist."""

from __future__ import annotations

from collections.abc import Sequence

from callsheet.backends import base
from callsheet.cli import output
from callsheet.errors import UserError, did_you_mean


def find_run(backend: base.Backend, reference: str | None, *, quiet: bool = False) -> base.Run:
    """The run of that name; without a name the newest active run, or else the newest of all."""
    if reference is not None:
        return backend.find(reference)
    known = backend.runs()
    if not known:
        raise UserError("there are no runs yet", fix="start one with `callsheet run -f FILE`")
    likely = candidates(known)
    if len(likely) > 1 and not quiet:
        output.say(f"Using the newest of {len(likely)} runs: {likely[0].run}.", "dim")
    return backend.find(likely[0].run)


def candidates(known: Sequence[base.Status]) -> Sequence[base.Status]:
    """The runs that may be meant if none is named: the active ones, or else all; newest first."""
    return [status for status in known if not status.done] or known


def find_with_targets(
    backend: base.Backend, run: str | None, words: Sequence[str]
) -> tuple[base.Run, list[base.Target]]:
    """The run and the targets; if no run is called `run`, it may be a target in the newest run."""
    targets = [base.Target.parse(word) for word in words]
    try:
        return find_run(backend, run), targets
    except UserError:
        if run is None:
            raise
        try:
            first = base.Target.parse(run)
            newest = find_run(backend, None, quiet=True)
            known = [role.name for role in newest.status().roles]
        except UserError:
            known = []
        if not known or first.role not in known:
            raise
        return newest, [first, *targets]


def check_target(status: base.Status, target: base.Target) -> None:
    """Raise if the run has no such role, index or container."""
    roles = [role.name for role in status.roles]
    if target.role not in roles:
        raise UserError(f"run {status.run} has no role {target.role!r}", fix=_choose(target.role, roles))
    if target.index is None:
        return
    replicas = {r.index: r for r in status.replicas if r.role == target.role}
    if target.index not in replicas:
        raise UserError(
            f"run {status.run} has no replica {target.role}/{target.index}",
            fix=replicas_hint(status, target.role),
        )
    names = [c.name for c in replicas[target.index].containers]
    if target.container and target.container not in names:
        raise UserError(
            f"{target.role}/{target.index} has no container {target.container!r}",
            fix=_choose(target.container, names),
        )


def replicas_hint(status: base.Status, role: str) -> str:
    """Which replicas the role has, as a hint."""
    indexes = [replica.index for replica in status.replicas if replica.role == role]
    last = f" to {role}/{max(indexes)}" if len(indexes) > 1 else ""
    return f"{role} has {role}/{min(indexes)}{last}" if indexes else f"{role} has no replicas now"


def check_container(status: base.Status, targets: Sequence[base.Target], container: str) -> None:
    """Raise if none of the chosen replicas has such a container."""
    roles = {target.role for target in targets} or {role.name for role in status.roles}
    names = list(dict.fromkeys(c.name for r in status.replicas if r.role in roles for c in r.containers))
    if names and container not in names:
        whose = " and ".join(sorted(roles)) if targets else f"run {status.run}"
        raise UserError(f"{whose} has no container {container!r}", fix=_choose(container, names))


def _choose(word: str, names: Sequence[str]) -> str:
    return did_you_mean(word, names, f"choose one of: {', '.join(names)}")
