"""The objects of one experiment in a cluster at one moment, and how to read them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from callsheet import contract
from callsheet.backends.kubernetes import names
from callsheet.backends.kubernetes.observe import reasons
from callsheet.backends.kubernetes.observe.exposed import Exposure
from callsheet.backends.kubernetes.record import Outcome, Record

Object = dict[str, Any]
_INDEX = ("batch.kubernetes.io/job-completion-index", "apps.kubernetes.io/pod-index")


@dataclass
class Observed:
    """All that the cluster holds of one experiment at one moment."""

    config_map: Object
    workloads: dict[str, Object]
    """Job or StatefulSet by role."""
    pods: list[Object]
    events: list[Object] = field(default_factory=list)
    exposure: Exposure = field(default_factory=Exposure)

    @property
    def run(self) -> str:
        return str(self.config_map["data"][contract.RUN])

    @property
    def experiment(self) -> dict[str, Any]:
        """The file, as it was applied."""
        data: dict[str, Any] = json.loads(self.config_map["data"][names.EXPERIMENT_FILE])
        return data

    @property
    def created(self) -> float:
        started = self._annotation(names.STARTED)
        return float(started or moment(self.config_map["metadata"].get("creationTimestamp")))

    @property
    def outcome(self) -> Outcome | None:
        """How the run was ended, if somebody ended it."""
        data = json.loads(self._annotation(names.OUTCOME) or "{}")
        return Outcome(**data) if data.get("run") == self.run else None

    @property
    def suspended(self) -> bool:
        """Whether the file says that nothing should run now."""
        return bool((self.experiment["spec"].get("lifecycle") or {}).get("suspend"))

    @property
    def record(self) -> Record:
        """What attached clients have seen of the run."""
        data = json.loads(self._annotation(names.RECORD) or "{}")
        if data.get("run") == self.run:
            return Record.from_data(data)
        return Record(self.run, since=self.created if self.suspended else 0.0)

    def _annotation(self, name: str) -> str:
        return str((self.config_map["metadata"].get("annotations") or {}).get(name, ""))

    def size(self, role: str) -> int:
        """How many replicas the role should have."""
        return int(self.config_map["data"].get(f"{contract.REPLICAS}.{role}", "0"))

    def by_replica(self) -> dict[tuple[str, int], list[Object]]:
        """The pods of each replica, the newest last."""
        pods: dict[tuple[str, int], list[Object]] = {}
        forgotten = set(self.record.forgotten)
        for pod in sorted(self.pods, key=_age_key):
            if (index := index_of(pod)) is not None and reasons.uid(pod) not in forgotten:
                pods.setdefault((role_of(pod), index), []).append(pod)
        return pods

    def newest(self, role: str) -> dict[int, Object]:
        """The newest pod of each replica of a role."""
        return {index: pods[-1] for (name, index), pods in self.by_replica().items() if name == role}


def role_of(pod: Object) -> str:
    """The pod's role."""
    return str((pod["metadata"].get("labels") or {}).get(names.ROLE, ""))


def index_of(pod: Object) -> int | None:
    """Which replica the pod is."""
    marks = (pod["metadata"].get("annotations") or {}) | (pod["metadata"].get("labels") or {})
    return next((int(marks[key]) for key in _INDEX if key in marks), None)


def is_over(pod: Object) -> bool:
    """Whether every program in the pod has ended, and none will start again."""
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def indexes(text: str) -> set[int]:
    """Kubernetes' short form of a set of indexes: ``0,3-5``."""
    members: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        members |= set(range(int(first), int(last or first) + 1))
    return members


def moment(text: str | None) -> float:
    """A timestamp of the API server as seconds since 1970; 0 when there is none."""
    return datetime.fromisoformat(text).timestamp() if text else 0.0


def _age_key(pod: Object) -> tuple[str, int]:
    # Two pods may be made within one second; the later one knows of more failures.
    failures = (pod["metadata"].get("annotations") or {}).get(names.FAILURE_COUNT, "0")
    return pod["metadata"].get("creationTimestamp") or "", int(failures)
