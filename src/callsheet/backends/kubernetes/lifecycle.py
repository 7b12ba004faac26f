"""When a run has ended, by the rules of its file: pure, so that whoever looks comes to the same verdict.

On a cluster nobody supervises a run but the client that is attached to it; it asks here after each look, and ends the
run when there is a verdict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from callsheet import contract
from callsheet.backends.status import Phase, ReplicaStatus


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a run ends, or ended."""

    run: str
    phase: Phase
    reason: str
    code: int
    at: float
    """When it was decided."""

    def to_data(self) -> dict[str, Any]:
        """As JSON-compatible data: what the annotation of the run's ConfigMap holds."""
        return asdict(self)


def decide(
    run: str,
    experiment: Mapping[str, Any],
    replicas: Sequence[ReplicaStatus],
    codes: Mapping[str, int],
    *,
    created: float,
    now: float,
) -> Verdict | None:
    """The verdict; None while the run goes on. `codes`: how the replicas' main containers ended, by name."""
    lifecycle = experiment["spec"].get("lifecycle") or {}

    def verdict(phase: Phase, reason: str, code: int) -> Verdict:
        return Verdict(run, phase, reason, code, now)

    failed = next((replica for replica in replicas if replica.phase == "Failed"), None)
    if failed:
        said = f"{failed.name} failed: {failed.reason}" if failed.reason else f"{failed.name} failed"
        return verdict("Failed", said, codes.get(failed.name) or contract.EXIT_FAILED)
    success = success_roles(experiment)
    if success and all(replica.phase == "Succeeded" for replica in replicas if replica.role in success):
        return verdict("Succeeded", f"every replica of {', '.join(success)} ended with 0", contract.EXIT_OK)
    budget = lifecycle.get("maxRestarts")
    used = sum(replica.restarts for replica in replicas)
    if budget is not None and used > budget:
        return verdict(
            "Failed",
            f"the run's budget of {budget} restarts (lifecycle.maxRestarts) is used up",
            contract.EXIT_FAILED,
        )
    deadline = lifecycle.get("deadline")
    if deadline and now > created + seconds(deadline):
        return verdict("Failed", f"it took longer than its deadline of {deadline}", contract.EXIT_DEADLINE)
    return None


def success_roles(experiment: Mapping[str, Any]) -> list[str]:
    """The roles whose end is the run's success."""
    named = (experiment["spec"].get("lifecycle") or {}).get("success")
    if named:
        return list(named)
    return [role["name"] for role in experiment["spec"]["roles"] if policy(role) != "Always"]


def policy(role: Mapping[str, Any]) -> str:
    """A role's restart policy."""
    return str((role.get("restart") or {}).get("policy", "OnFailure"))


def seconds(duration: str) -> float:
    """Seconds in ``1h30m``."""
    from callsheet.spec.quantity import parse_duration  # pydantic is slow to import, and deadlines are rare

    return parse_duration(duration)
