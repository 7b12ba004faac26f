"""What clients write on a run's ConfigMap: how the run ended, and what its objects no longer tell.

On a cluster nobody supervises a run but the client that is attached to it, and clients come and go. What one of them
has seen, and the next must know to come to the same verdict, is therefore kept beside the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from callsheet.backends.status import Phase, ReplicaStatus
from callsheet.lifecycle.restart import RestartRules
from callsheet.lifecycle.verdict import RunRules, Verdict, success_roles


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run was ended."""

    run: str
    phase: Phase
    reason: str
    code: int
    at: float
    """When it was decided."""

    @staticmethod
    def of(run: str, verdict: Verdict, at: float) -> Outcome:
        """The verdict on a run."""
        return Outcome(run, verdict.phase, verdict.reason, verdict.code, at)

    def to_data(self) -> dict[str, Any]:
        """As JSON-compatible data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Count:
    """What the pods of one replica do not tell, or take with them.

    A Job counts failures itself; a StatefulSet's pod tells how often its program ended, but only how it last did.
    """

    pod: str = ""
    ends: int = 0
    """How often the program in that pod had ended when this was written."""
    failures: int = 0
    failed: str = ""
    """Why it has failed for good."""
    code: int = 0
    sidecars: dict[str, int] = field(default_factory=dict)
    """Restarts of the sidecars, by pod and container."""


@dataclass(frozen=True, slots=True)
class Record:
    """What an attached client has seen of a run."""

    run: str
    started: bool = False
    """Every replica was ready at the same time once."""
    left: int = 0
    """Failures of replicas that were scaled away: they stay spent."""
    suspended: float = 0.0
    """Seconds for which the run was suspended, up to `since` if it is now."""
    since: float = 0.0
    """When it was suspended; 0 while it is not."""
    replicas: dict[str, Count] = field(default_factory=dict)
    """Only those in which anything ever ended."""
    forgotten: list[str] = field(default_factory=list)
    """Pods of replicas that were scaled away; a replica that comes back begins afresh."""

    def to_data(self) -> dict[str, Any]:
        """As JSON-compatible data."""
        return asdict(self)

    @staticmethod
    def from_data(data: Mapping[str, Any]) -> Record:
        """The inverse of `to_data`."""
        counts = {name: Count(**count) for name, count in data.get("replicas", {}).items()}
        return Record(**{**data, "replicas": counts})

    def at(self, now: float, *, suspended: bool) -> Record:
        """The same at this moment, in which the file says whether the run is suspended."""
        if suspended == (self.since > 0):
            return self
        if suspended:
            return replace(self, since=now, started=False)
        return replace(self, since=0.0, suspended=self.suspended + now - self.since)

    def without(self, leaving: Sequence[ReplicaStatus], pods: Iterable[str]) -> Record:
        """The same after replicas, with these pods, were scaled away."""
        names = {replica.name for replica in leaving}
        spent = sum(failures_of(replica) for replica in leaving)
        kept = {name: count for name, count in self.replicas.items() if name not in names}
        return replace(
            self, left=self.left + spent, replicas=kept, forgotten=sorted({*self.forgotten, *pods})
        )

    def active(self, created: float, now: float) -> float:
        """Seconds for which the run was not suspended."""
        return (self.since or now) - created - self.suspended


def failures_of(replica: ReplicaStatus) -> int:
    """Restarts of a replica that count against the run's budget."""
    return replica.restarts - sum(container.restarts for container in replica.containers[1:])


def run_rules(experiment: Mapping[str, Any]) -> RunRules:
    """What the file says about the end of the run."""
    lifecycle = experiment["spec"].get("lifecycle") or {}
    policies = {role["name"]: restart_rules(role).policy for role in experiment["spec"]["roles"]}
    deadline = lifecycle.get("deadline")
    return RunRules(
        success_roles(lifecycle.get("success") or (), policies),
        lifecycle.get("maxRestarts"),
        _seconds(deadline) if deadline else None,
    )


def restart_rules(role: Mapping[str, Any]) -> RestartRules:
    """What the file says about the restarts of a role."""
    said = role.get("restart") or {}
    return RestartRules(**{key: said[key] for key in ("policy", "limit") if key in said})


def _seconds(duration: str) -> float:
    from callsheet.spec.quantity import parse_duration  # pydantic is slow to import, and deadlines are rare

    return parse_duration(duration)
