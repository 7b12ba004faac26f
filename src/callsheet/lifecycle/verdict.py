"""When a run has ended, and how. To add or change such a rule, edit `verdict`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from callsheet import contract
from callsheet.lifecycle.restart import Policy


@dataclass(frozen=True, slots=True)
class RunRules:
    """What the file says about the end of a run."""

    success: tuple[str, ...] = ()
    """The roles that decide; see `success_roles`."""
    max_restarts: int | None = None
    deadline: float | None = None
    """Seconds."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A replica that has failed for good."""

    replica: str
    reason: str
    code: int


@dataclass(frozen=True, slots=True)
class RoleCount:
    """Where a role stands; replicas that are being scaled away no longer count."""

    wanted: int = 0
    succeeded: int = 0
    failure: Failure | None = None
    """The first replica that has failed for good."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a run ends."""

    phase: Literal["Succeeded", "Failed", "Stopped"]
    reason: str
    code: int


def success_roles(named: Iterable[str], policies: Mapping[str, Policy]) -> tuple[str, ...]:
    """The roles that decide about success: those the file names, else all that can end."""
    return tuple(named) or tuple(role for role, policy in policies.items() if policy != "Always")


def verdict(
    rules: RunRules, role_counts: Mapping[str, RoleCount], restarts_spent: int, active_seconds: float
) -> Verdict | None:
    """How the run ends now; None while it continues. Time for which it was suspended is not active."""
    failure = next((count.failure for count in role_counts.values() if count.failure), None)
    if failure:
        reason = (
            f"{failure.replica} failed: {failure.reason}" if failure.reason else f"{failure.replica} failed"
        )
        return Verdict("Failed", reason, failure.code or contract.EXIT_FAILED)
    deciding = [role_counts.get(role, RoleCount()) for role in rules.success]
    # Roles without replicas have no say, but somebody must have succeeded.
    if any(count.wanted for count in deciding) and all(count.succeeded == count.wanted for count in deciding):
        return Verdict(
            "Succeeded", f"every replica of {', '.join(rules.success)} ended with 0", contract.EXIT_OK
        )
    if rules.max_restarts is not None and restarts_spent > rules.max_restarts:
        reason = f"the run's budget of {rules.max_restarts} restarts (lifecycle.maxRestarts) is used up"
        return Verdict("Failed", reason, contract.EXIT_FAILED)
    if rules.deadline is not None and active_seconds >= rules.deadline:
        return Verdict("Failed", f"the deadline of {rules.deadline:g} s has passed", contract.EXIT_DEADLINE)
    return None


def all_started(phases: Iterable[str]) -> bool:
    """Whether every replica is ready or done at this moment: from then on the run is Running."""
    return all(phase in ("Running", "Succeeded") for phase in phases)
