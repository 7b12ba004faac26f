"""What clients write on a run's ConfigMap: how the run ended, and what its objects no longer tell.

On a cluster nobody supervises a run but the client that is attached to it, and clients come and go. What one of them
has seen, and the next must know to come to the same verdict, is therefore kept beside the run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from callsheet.backends.status import Phase, ReplicaStatus
from callsheet.lifecycle.restart import RestartRules
from callsheet.lifecycle.verdict import RunRules, Verdict, success_roles

LARGEST = 200_000
"""Bytes of a record: Kubernetes allows 256 KiB for all annotations of an object."""


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

    def to_text(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self))


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
        """As JSON-compatible data, without what is at its default: thousands of replicas may have ended."""
        counts = {name: _filled(asdict(count)) for name, count in self.replicas.items()}
        return {"run": self.run, **_filled({**asdict(self), "replicas": counts})}

    def to_text(self) -> str:
        """As JSON that fits into an annotation; if it does not, only replicas that have failed for good are listed."""
        text = json.dumps(self.to_data())
        if len(text) <= LARGEST:
            return text
        failed = {name: count for name, count in self.replicas.items() if count.failed}
        return json.dumps(replace(self, replicas=failed, forgotten=[]).to_data())

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
        """The same after replicas were scaled away. `pods`: all that exist of those that ever were."""
        names = {replica.name for replica in leaving}
        spent = sum(failures_of(replica) for replica in leaving)
        kept = {name: count for name, count in self.replicas.items() if name not in names}
        return replace(self, left=self.left + spent, replicas=kept, forgotten=sorted(pods))

    def active(self, created: float, now: float) -> float:
        """Seconds for which the run was not suspended."""
        return (self.since or now) - created - self.suspended


def _filled(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if value}


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
