"""A run in a cluster as the status that every view shows. Pure: objects in, status out."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from callsheet import contract
from callsheet.backends.kubernetes import names
from callsheet.backends.kubernetes.observe import reasons
from callsheet.backends.kubernetes.observe.exposed import addresses
from callsheet.backends.kubernetes.observe.observed import Observed, is_over, moment
from callsheet.backends.kubernetes.observe.replicas import Replicas
from callsheet.backends.kubernetes.record import Outcome, Record, run_rules
from callsheet.backends.status import Phase, Status, count_roles
from callsheet.lifecycle.verdict import RoleCount, all_started, verdict


@dataclass(frozen=True, slots=True)
class Assessment:
    """The status, and what an attached client should do about it."""

    status: Status
    outcome: Outcome | None = None
    """How it should end the run now; None when nothing is to be done, or done already."""
    record: Record | None = None
    """What it should write down; None when nothing new was seen."""
    version: str = ""
    """Of the run's ConfigMap when this was seen."""


def assess(observed: Observed, now: float) -> Assessment:
    """The run at this moment."""
    experiment = observed.experiment
    rules = run_rules(experiment)
    looked = Replicas(observed, rules.max_restarts, now)
    by_role = {role["name"]: list(looked.of(role)) for role in experiment["spec"]["roles"]}
    replicas = [replica for members in by_role.values() for replica in members]
    record = observed.record.at(now, suspended=observed.suspended)
    record = replace(
        record,
        started=record.started or (not observed.suspended and all_started(r.phase for r in replicas)),
        replicas=looked.counts,
    )
    outcome = observed.outcome
    if outcome is None:
        counts = {
            name: RoleCount(
                wanted=len(members),
                succeeded=sum(replica.phase == "Succeeded" for replica in members),
                failure=looked.failures.get(name),
            )
            for name, members in by_role.items()
        }
        said = verdict(rules, counts, looked.spent, record.active(observed.created, now))
        outcome = Outcome.of(observed.run, said, now) if said else None
    status = Status(
        experiment=experiment["metadata"]["name"],
        run=observed.run,
        phase=_phase(observed, outcome, record),
        backend="kubernetes",
        namespace=observed.config_map["metadata"].get("namespace", ""),
        created=observed.created,
        folder=observed.config_map["data"].get(contract.STORAGE, ""),
        generation=json.loads(observed.config_map["data"].get(names.ADDRESSES_FILE, "{}")).get(
            "generation", 0
        ),
        restarts=looked.spent,
        exposed=addresses(observed.config_map, experiment, observed.exposure),
        roles=count_roles(by_role, replicas),
        replicas=replicas,
    )
    _add_end(status, observed, outcome)
    status.uptime = (status.finished or now) - observed.created
    if observed.outcome:
        return Assessment(status)
    version = observed.config_map["metadata"].get("resourceVersion", "")
    return Assessment(status, outcome, record if record != observed.record else None, version)


def _add_end(status: Status, observed: Observed, outcome: Outcome | None) -> None:
    if outcome is None:
        return
    if observed.outcome or status.done:
        status.reason = outcome.reason
    if status.done:
        status.exit_code = outcome.code
        status.finished = max(_last_end(observed), outcome.at if observed.outcome else 0.0)
    elif not observed.outcome:
        status.warnings.append(
            f"it should end now ({outcome.reason}) and nobody is attached who ends it: "
            f"`callsheet attach {observed.run}` or `callsheet stop {observed.run}`"
        )


def _phase(observed: Observed, outcome: Outcome | None, record: Record) -> Phase:
    ended = observed.outcome is not None
    active = not all(map(is_over, observed.pods))
    lifecycle = observed.experiment["spec"].get("lifecycle") or {}
    if outcome:
        pods_stay = ended and lifecycle.get("cleanPods") == "None" and outcome.phase != "Stopped"
        if not active or pods_stay:
            return outcome.phase
    if ended:
        return "Stopping"
    if observed.suspended:
        return "Suspended"
    if record.started:
        return "Running"
    return "Starting" if observed.pods else "Pending"


def _last_end(observed: Observed) -> float:
    ends = [
        moment(reasons.terminated(container).get("finishedAt"))
        for pod in observed.pods
        for container in reasons.containers_of(pod["status"])
    ]
    ends += [moment((w.get("status") or {}).get("completionTime")) for w in observed.workloads.values()]
    return max(ends, default=0.0)
