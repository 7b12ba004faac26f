"""Names, labels and paths of the rendered objects, in one place, so that render, client and docs agree."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from callsheet import contract

if TYPE_CHECKING:
    from callsheet.spec.experiment import Role

MANAGER: Final = "callsheet"
"""Field manager of server-side apply, and the value of the managed-by label."""

MANAGED_BY: Final = "app.kubernetes.io/managed-by"
EXPERIMENT: Final = "callsheet.dev/experiment"
RUN: Final = "callsheet.dev/run"
ROLE: Final = "callsheet.dev/role"
ENDPOINT: Final = "callsheet.dev/endpoint"

STARTED: Final = "callsheet.dev/started"
"""Annotation of the run's ConfigMap: when the run began, in seconds since 1970."""
OUTCOME: Final = "callsheet.dev/outcome"
"""Annotation of the run's ConfigMap: how the run ended, as JSON. It names the run, so that the next one ignores it."""
RECORD: Final = "callsheet.dev/record"
"""Annotation of the run's ConfigMap: what attached clients have seen and its objects no longer tell, as JSON."""
RESIZED: Final = "callsheet.dev/resized"
"""Annotation of a pod: when the experiment was last resized."""

FAILURE_COUNT: Final = "batch.kubernetes.io/job-index-failure-count"
"""A pod's annotation, of the Job controller: failures of its index before it."""

ROOT: Final = "/callsheet"
WORKDIR: Final = "/callsheet/workdir"
FILES: Final = "/callsheet/files"
KEYS: Final = "/callsheet/keys"
STORAGE: Final = "/callsheet/storage"
RUN_FOLDER: Final = "/callsheet/run"
ADDRESSES_FILE: Final = "addresses.json"
EXPERIMENT_FILE: Final = "experiment.json"
"""Key in the run's ConfigMap: the experiment as it was run, so that any client can scale it."""
ADDRESSES: Final = f"{RUN_FOLDER}/{ADDRESSES_FILE}"


class Owner(Enum):
    """What makes the pods of a role: its kind, and the fields that hold a pod's index and its count of failures."""

    JOB = (
        "Job",
        "metadata.annotations['batch.kubernetes.io/job-completion-index']",
        f"metadata.annotations['{FAILURE_COUNT}']",
    )
    STATEFUL_SET = ("StatefulSet", "metadata.labels['apps.kubernetes.io/pod-index']", "")

    def __init__(self, kind: str, index: str, failures: str) -> None:
        self.kind, self.index, self.failures = kind, index, failures

    @classmethod
    def of(cls, role: Role) -> Owner:
        """A StatefulSet for roles that never end."""
        return cls.STATEFUL_SET if role.restart.policy == "Always" else cls.JOB


def labels(experiment: str, run: str, role: str = "") -> dict[str, str]:
    """The labels of every object of a run."""
    labels = {MANAGED_BY: MANAGER, EXPERIMENT: experiment, RUN: run}
    return labels | ({ROLE: role} if role else {})


def selector(experiment: str, role: str = "") -> dict[str, str]:
    """Labels that select the pods of an experiment or a role. Not of a run: a Service outlives it."""
    return {EXPERIMENT: experiment} | ({ROLE: role} if role else {})


def config_map(experiment: str) -> str:
    """The run's ConfigMap: it holds everything that scaling changes, and owns the other objects."""
    return experiment


def replicas_key(role: str) -> str:
    """The key in the run's ConfigMap that holds a role's size."""
    return f"{contract.REPLICAS}.{role}"


def files(experiment: str) -> str:
    """The ConfigMap of injected files."""
    return f"{experiment}-files"


def keys(experiment: str) -> str:
    """The Secret of the run's keys."""
    return f"{experiment}-keys"


def workload(experiment: str, role: str) -> str:
    """The Job or StatefulSet of a role."""
    return f"{experiment}-{role}"


def service(experiment: str, endpoint: str) -> str:
    """The Service over all replicas behind an endpoint."""
    return f"{experiment}-{endpoint}"


def host(experiment: str, role: str, index: int | str) -> str:
    """The stable host name of a replica, as its peers in the namespace resolve it."""
    return f"{experiment}-{role}-{index}.{experiment}"
