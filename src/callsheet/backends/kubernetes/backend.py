"""The Kubernetes backend: the same experiment in a cluster, nothing installed there.

The client library is imported only when a cluster is needed: `plan` and `render` need none.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from callsheet.backends import user_config
from callsheet.backends.base import Place, PlannedChange, Status
from callsheet.backends.run_ids import KnownRun, choose_run
from callsheet.errors import UserError

if TYPE_CHECKING:
    from callsheet.backends.cluster import Finding, Node
    from callsheet.backends.kubernetes.apply import Change
    from callsheet.backends.kubernetes.client.api import Api
    from callsheet.backends.kubernetes.run import KubernetesRun
    from callsheet.plan.model import Plan
    from callsheet.spec.experiment import Experiment


class KubernetesBackend:
    """Runs experiments in a cluster."""

    name = "kubernetes"
    on_this_machine = False

    def __init__(self, place: Place | None = None) -> None:
        self.place = place or Place()

    @cached_property
    def api(self) -> Api:
        """The cluster."""
        from callsheet.backends.kubernetes.client.api import Api

        own = user_config.load()
        # The settings' namespace is one of the settings' context.
        namespace = self.place.namespace or ("" if self.place.context else own.namespace)
        return Api.connect(self.place.context or own.context, namespace)

    def plan(self, experiment: Experiment, *, base: Path) -> Plan:
        """The plan. Nothing is started and no cluster is asked."""
        from callsheet.backends.kubernetes.render.addressing import KubernetesAddressing
        from callsheet.plan.resolve import resolve

        return resolve(experiment, KubernetesAddressing(experiment, "RUN"), "RUN")

    def render(self, experiment: Experiment, *, base: Path) -> str:
        """The manifests, for `kubectl apply -f -`."""
        from callsheet.backends.kubernetes.render.objects import manifests, to_text

        return to_text(manifests(experiment, base))

    def check(self, experiment: Experiment, *, base: Path) -> None:
        """Raise an error if it cannot be rendered. No cluster is asked."""
        from callsheet.backends.kubernetes.render.objects import manifests

        self._check_namespace(experiment)
        manifests(experiment, base)

    def unused(self, experiment: Experiment) -> list[str]:
        """None: every field of the file has a meaning in a cluster."""
        return []

    def start(
        self, experiment: Experiment, *, base: Path, source: str = "", detach: bool = False
    ) -> KubernetesRun:
        """Start it, or change the running one of that name. It outlives this process in any case."""
        from callsheet.backends.kubernetes.launch import start

        return start(self._within(experiment), experiment, base, source, detach=detach)

    def changes(self, experiment: Experiment, *, base: Path) -> list[Change]:
        """What `start` would change in the cluster. Changes nothing."""
        from callsheet.backends.kubernetes.launch import changes

        return changes(self._within(experiment), experiment, base)

    def preview(self, experiment: Experiment, *, base: Path) -> list[PlannedChange]:
        """The changes as the API server would make them."""
        from callsheet.backends.kubernetes.diff import lines

        return [
            PlannedChange(
                c.action, c.kind, c.name, diff=[] if c.action in ("create", "delete") else list(lines(c))
            )
            for c in self.changes(experiment, base=base)
            if c.action != "keep"
        ]

    def _within(self, experiment: Experiment) -> Api:
        """The namespace of the command line, else of the file, else of the context."""
        self._check_namespace(experiment)
        wanted = experiment.metadata.namespace
        return self.api.within(wanted) if wanted else self.api

    def _check_namespace(self, experiment: Experiment) -> None:
        wanted = experiment.metadata.namespace
        if wanted and self.place.namespace not in ("", wanted):
            raise UserError(
                f"the file sets namespace {wanted!r}, but the command line {self.place.namespace!r}",
                fix="remove one of them",
            )

    def runs(self) -> list[Status]:
        """The runs in the namespace, or in all of them, newest first."""
        from callsheet.backends.kubernetes.observe.snapshot import observe_all
        from callsheet.backends.kubernetes.observe.status import assess

        now = time.time()
        statuses = [
            assess(observed, now).status
            for observed in observe_all(self.api, everywhere=self.place.everywhere)
        ]
        return sorted(statuses, key=lambda status: -status.created)

    def find(self, reference: str) -> KubernetesRun:
        """A run by its id, the beginning of its id, `experiment/id`, or the experiment's name."""
        from callsheet.backends.kubernetes.run import KubernetesRun

        known = [KnownRun(s.experiment, s.run, not s.done, s.namespace) for s in self.runs()]
        missing = UserError(
            f"there is no run {reference!r} in the namespace {self.api.namespace!r}",
            fix="list them with `callsheet ps --on kubernetes -a`, or search all namespaces with -A",
        )
        chosen = choose_run(reference, known, missing=missing)
        return KubernetesRun(self.api.within(chosen.namespace), chosen.experiment, chosen.run)

    def nodes(self) -> list[Node]:
        """The cluster's nodes."""
        from callsheet.backends.kubernetes.observe.cluster import nodes

        return nodes(self.api)

    def examine(self) -> Iterator[Finding]:
        """Check everything that a run needs."""
        from callsheet.backends.kubernetes.observe.cluster import examine

        return examine(lambda: self.api)

    def role_manifest(self) -> dict[str, Any]:
        """The Role with the permissions that a user needs."""
        from callsheet.backends.kubernetes.rights import role

        return role()

    def make_key(self, experiment: str) -> tuple[str, bool]:
        """Create the Secret with the key of an experiment's next run; its name, and False if the current run has one."""
        from callsheet.backends.kubernetes.launch import make_key
        from callsheet.backends.kubernetes.names import keys

        return keys(experiment), make_key(self.api, experiment)
