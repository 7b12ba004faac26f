"""A handle on one run in a cluster: looks at it, changes it, and, while attached, ends it by the lifecycle's rules.

The run lives in the cluster. Losing the connection, or this process, changes nothing about it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from callsheet import contract
from callsheet.backends.base import LogLine, LogQuery, Status, Target, wait_for_end
from callsheet.backends.kubernetes import names
from callsheet.backends.kubernetes.apply import WORKLOADS, parallel, prune, wait_until
from callsheet.backends.kubernetes.client.api import Api, Object
from callsheet.backends.kubernetes.client.errors import ApiError, Unreachable
from callsheet.backends.kubernetes.local_copy import LocalCopy
from callsheet.backends.kubernetes.observe import reasons
from callsheet.backends.kubernetes.observe.follow import LogFollower
from callsheet.backends.kubernetes.observe.logs import read_once
from callsheet.backends.kubernetes.observe.observed import Observed, index_of, is_over, role_of
from callsheet.backends.kubernetes.observe.snapshot import observe
from callsheet.backends.kubernetes.observe.status import Assessment, assess
from callsheet.backends.kubernetes.record import Outcome, Record
from callsheet.backends.log_chunks import LogChunk, lines, matching
from callsheet.errors import RetryError, UserError

if TYPE_CHECKING:
    from callsheet.backends.cluster import ClusterEvent
    from callsheet.backends.kubernetes.client.port_forward import Forward
    from callsheet.backends.kubernetes.observe.metrics import PodMetrics
    from callsheet.metrics.reader import ProcessMetrics

_SLOWEST_LOOK = 5.0
_LAST_WORDS = 3
_GOING = 120.0
_ENDING = 30.0
"""Seconds for which a run that is to be deleted may still be ending."""
_PATIENT = 20
"""How often a stop is retried when somebody else changed the run's ConfigMap first."""


class KubernetesRun:
    """One run of an experiment in one namespace."""

    outlives_us = True
    needs_attached_client = True

    def __init__(self, api: Api, experiment: str, run: str, *, attached: bool = False) -> None:
        self.api = api
        self.id = run
        self.experiment = experiment
        self.attached = attached
        """Whether this client ends the run when its file says so."""
        self.notes: list[str] = []
        self.local_copy = LocalCopy.of(experiment, run)
        self._words: dict[tuple[str, int], str] = {}
        self._metrics: PodMetrics | None = None

    def attach(self) -> None:
        """End the run by its rules from now on, and keep the logs that pass."""
        self.attached = True
        from callsheet.spec.dump import to_yaml
        from callsheet.spec.experiment import Experiment

        self.local_copy.start(to_yaml(Experiment.model_validate(self._observe(events=False).experiment)))

    def status(self) -> Status:
        """The run now."""
        return self._assess().status

    def _observe(self, *, events: bool = True) -> Observed:
        observed = observe(self.api, self.experiment, events=events)
        if observed.run != self.id:
            raise UserError(
                f"the run {self.id} of {self.experiment} is gone: the run {observed.run} took its place",
                fix=f"look at that one: callsheet status --on kubernetes {observed.run}",
            )
        return observed

    def _assess(self) -> Assessment:
        observed = self._observe()
        seen = assess(observed, time.time())
        self._add_last_words(observed, seen.status)
        if self.local_copy.exists:
            seen.status.folder = seen.status.folder or str(self.local_copy.folder)
        return seen

    def _add_last_words(self, observed: Observed, status: Status) -> None:
        """The last lines of what keeps ending: the first thing that anyone would look for."""
        for replica in [r for r in status.replicas if "keeps ending" in r.reason][:_LAST_WORDS]:
            pod = observed.newest(replica.role)[replica.index]
            crashed = next(c for c in reasons.containers_of(pod["status"]) if "waiting" in c["state"])
            key = (reasons.uid(pod), int(crashed["restartCount"]))
            if key not in self._words:
                params = {"container": crashed["name"], "tailLines": str(_LAST_WORDS), "previous": "true"}
                try:
                    log = b"".join(self.api.log(pod["metadata"]["name"], params))
                except (ApiError, Unreachable):
                    continue
                self._words[key] = " ↵ ".join(log.decode(errors="replace").strip().splitlines())
            if self._words[key]:
                replica.reason += f"; its last lines: {reasons.shorten(self._words[key])}"

    def watch(self, interval: float = 0.5) -> Iterator[Status]:
        """The run now and again until it has ended. A cluster that does not answer is waited for, visibly."""
        last: Status | None = None
        while True:
            began = time.monotonic()
            try:
                seen = self._assess()
                if self.attached and seen.outcome:
                    self._end(seen.outcome, record=seen.record)
                    seen = self._assess()
                elif self.attached and seen.record:
                    self._annotate(seen.version, record=seen.record)
            except Unreachable as error:
                if last is None:
                    raise
                yield replace(last, warnings=[*last.warnings, f"{error.message}; trying again"])
                time.sleep(interval)
                continue
            last = seen.status
            yield last
            if last.done:
                if self.attached:
                    self.local_copy.finish(last)
                return
            # A look costs the API server the more the more pods there are.
            pause = min(_SLOWEST_LOOK, max(interval, len(last.replicas) / 200))
            time.sleep(max(0.0, began + pause - time.monotonic()))

    def wait(self, timeout: float | None = None) -> Status:
        """Block until the run has ended."""
        return wait_for_end(self, timeout)

    def logs(self, query: LogQuery | None = None) -> Iterator[LogLine]:
        """Lines of output; of pods that are gone, what this machine has kept."""
        return lines(self.log_chunks(query))

    def log_chunks(self, query: LogQuery | None = None) -> Iterator[LogChunk]:
        """The same, many lines at a time."""
        query = query or LogQuery()
        return matching(self._chunks(query), query.grep)

    def _chunks(self, query: LogQuery) -> Iterator[LogChunk]:
        if query.follow:
            yield from LogFollower(
                self.api, query, self._look, self.local_copy.append if self.attached else None
            ).chunks()
            return
        observed = self._observe(events=False)
        gone: set[tuple[str, int]] = set()
        yield from read_once(self.api, observed.pods, query, gone)
        there = {(role_of(pod), index_of(pod)) for pod in observed.pods} - gone
        yield from self.local_copy.chunks(query, exclude=there)

    def _look(self) -> tuple[list[Object], bool]:
        observed = self._observe(events=False)
        return observed.pods, assess(observed, time.time()).status.done

    def scale(self, replicas: Mapping[str, int]) -> Status:
        """Resize elastic roles: the run's ConfigMap first, so that new replicas see the new addresses."""
        from callsheet.backends.kubernetes.launch import resize

        observed = self._observe(events=False)
        self._check_alive(observed)
        resize(self.api, observed, replicas)
        observed = self._observe(events=False)
        if observed.outcome:  # written meanwhile: a StatefulSet that was halted lives again
            parallel(self._halt, observed.workloads.values())
            self._check_alive(observed)
        return self.status()

    def restart(self, targets: Sequence[Target]) -> list[str]:
        """Evict the pods of replicas; their Job or StatefulSet makes new ones, and no failure is counted."""
        observed = self._observe(events=False)
        self._check_alive(observed)
        chosen = {
            f"{role_of(pod)}/{index_of(pod)}": pod["metadata"]["name"]
            for pod in observed.pods
            if pod["status"].get("phase") in ("Pending", "Running")
            and any(target.matches(role_of(pod), index_of(pod) or 0) for target in targets)
        }
        if not chosen:
            raise UserError(
                "none of these replicas has a pod that could be restarted",
                fix=f"see: callsheet status --on kubernetes {self.id}",
            )
        parallel(self.api.evict, chosen.values())
        return sorted(chosen)

    def _check_alive(self, observed: Observed) -> None:
        if observed.outcome or assess(observed, time.time()).status.done:
            raise UserError(f"the run {self.id} has ended", fix="start a new one: callsheet run")

    def stop(self, *, kill: bool = False, reason: str = "", code: int | None = None) -> None:
        """End every pod; with `kill`, at once."""
        code = contract.EXIT_STOPPED if code is None else code
        outcome = Outcome(self.id, "Stopped", reason or "stopped", code, time.time())
        for _ in range(_PATIENT):
            observed = self._observe(events=False)
            if assess(observed, time.time()).status.done:
                return
            if observed.outcome or self._end(outcome, observed):
                break
        else:
            raise RetryError(f"others keep changing the run {self.id}", fix="stop it again")
        if kill:
            pods = [p["metadata"]["name"] for p in observed.pods if not is_over(p)]
            parallel(lambda pod: self.api.delete("Pod", pod, grace=0), pods)

    def _end(self, outcome: Outcome, observed: Observed | None = None, record: Record | None = None) -> bool:
        """Record how the run ends, once, then end what still runs. False if the run's ConfigMap changed meanwhile."""
        observed = observed or self._observe(events=False)
        version = observed.config_map["metadata"]["resourceVersion"]
        if observed.outcome is None and not self._annotate(version, outcome=outcome, record=record):
            return False
        clean = (observed.experiment["spec"].get("lifecycle") or {}).get("cleanPods", "Running")
        if clean == "None" and outcome.phase != "Stopped":
            return True
        parallel(self._halt, observed.workloads.values())
        if clean == "All":
            # Looked at again: a Job may have made one more before it was halted.
            pods = self._observe(events=False).pods
            parallel(lambda pod: self.api.delete("Pod", pod["metadata"]["name"]), pods)
        return True

    def _annotate(self, version: str, **notes: Outcome | Record | None) -> bool:
        """Write on the run's ConfigMap; False if it changed meanwhile: the next look tells what somebody else did."""
        keys = {"outcome": names.OUTCOME, "record": names.RECORD}
        annotations = {keys[key]: note.to_text() for key, note in notes.items() if note}
        try:
            self.api.patch(
                "ConfigMap",
                names.config_map(self.experiment),
                {"metadata": {"annotations": annotations, "resourceVersion": version}},
            )
        except ApiError as error:
            if error.code != 409:
                raise
            return False
        return True

    def _halt(self, workload: Object) -> None:
        """A suspended Job ends its pods and keeps its counts; so does a StatefulSet of none."""
        conditions = (workload.get("status") or {}).get("conditions") or []
        over = any(c["type"] in ("Complete", "Failed") and c["status"] == "True" for c in conditions)
        stateful = "serviceName" in workload["spec"]
        kind = WORKLOADS[1] if stateful else WORKLOADS[0]
        if not over:
            change = {"replicas": 0} if stateful else {"suspend": True}
            self.api.patch(kind, workload["metadata"]["name"], {"spec": change})

    def exec(self, target: Target, command: Sequence[str], *, stdin: bool = False, tty: bool = False) -> int:
        """Run a command in a replica's container; its exit code."""
        from callsheet.backends.kubernetes.client.exec import run_in_pod

        return run_in_pod(self.api, self.pod(target), target.container or "", command, stdin=stdin, tty=tty)

    def pod(self, target: Target) -> Object:
        """The pod of a replica."""
        pod = self._observe(events=False).newest(target.role).get(target.index or 0)
        if pod is None or pod["status"].get("phase") != "Running":
            shown = f"{target.role}/{target.index or 0}"
            raise UserError(
                f"{shown} does not run now", fix=f"see why: callsheet status --on kubernetes {self.id}"
            )
        return pod

    def join(self, role: str, command: Sequence[str]) -> int:
        """Refused: nobody's terminal is part of the cluster's network."""
        fix = f"use `callsheet scale {self.id} {role}=N`"
        raise UserError("a member cannot join by hand on kubernetes", fix=fix)

    def copy_from(self, target: Target, source: str, destination: Path) -> int:
        """Copy a file or folder from a replica; the number of files."""
        from callsheet.backends.kubernetes.client.copy import copy_from

        return copy_from(self.api, self.pod(target), target.container or "", source, destination)

    def copy_to(self, target: Target, source: Path, destination: str) -> int:
        """Copy a file or folder to a replica; the number of files."""
        from callsheet.backends.kubernetes.client.copy import copy_to

        return copy_to(self.api, self.pod(target), target.container or "", source, destination)

    def forward(self, target: Target, remote: int, local: int | None, tell: Callable[[str], None]) -> Forward:
        """Bring a port of a replica to this machine; its pod may change meanwhile."""
        from callsheet.backends.kubernetes.client.port_forward import Forward

        return Forward(self.api, lambda: self.pod(target), remote, local, tell)

    def metrics(self) -> list[ProcessMetrics]:
        """The newest metrics of the pods whose role serves them on a port."""
        from callsheet.backends.kubernetes.observe.metrics import PodMetrics

        if self._metrics is None:
            self._metrics = PodMetrics(self.api, self.experiment, self.id, self.endpoints())
        return self._metrics.read()

    def endpoints(self) -> dict[str, tuple[str, int]]:
        """Role and port of each endpoint."""
        address_book = json.loads(self._observe(events=False).config_map["data"][names.ADDRESSES_FILE])
        return {
            name: (found["role"], int(found["port"])) for name, found in address_book["endpoints"].items()
        }

    def events(self) -> list[ClusterEvent]:
        """What the cluster recorded about the run's objects, oldest first."""
        from callsheet.backends.kubernetes.observe.events import cluster_events

        observed = self._observe(events=False)
        ours = {reasons.uid(made) for made in (*observed.pods, *observed.workloads.values())}
        return cluster_events(self.api.objects("Event"), ours)

    def delete(self) -> None:
        """Remove every object of the run; results in its storage stay."""
        if not self.status().done:
            if self._observe(events=False).outcome is None:
                raise UserError(
                    f"the run {self.id} has not ended", fix=f"stop it first: callsheet stop {self.id}"
                )
            # It is ending. A StatefulSet that is being halted may even make one more pod, and takes it back.
            wait_until(lambda: self.status().done, _ENDING, f"the run {self.id} has not ended")
        self.api.delete("ConfigMap", names.config_map(self.experiment))
        # What kubectl applied has no owner: it would stay.
        prune(self.api, self.experiment, set())
        self.api.delete("Secret", names.keys(self.experiment))
        labels = names.selector(self.experiment)
        wait_until(
            lambda: not any(self.api.objects(kind, labels) for kind in ("Pod", *WORKLOADS, "ConfigMap")),
            _GOING,
            f"some objects of {self.experiment} are still there",
        )
