"""Symphony's clusters, which start and stop experiments."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable
from typing import Any, ClassVar

from callsheet.backends import user_config
from callsheet.backends.base import Backend, Run, Status, backend
from callsheet.compat.symphony.base import no_counterpart
from callsheet.compat.symphony.queries import ExperimentQueries
from callsheet.compat.symphony.spec import ExperimentSpec
from callsheet.errors import UserError
from callsheet.sdk.experiment import BACKEND_VARIABLE, default_backend

_CLUSTERS = {
    "kubernetes": ("kube", "KubeCluster"),
    "kube": ("kube", "KubeCluster"),
    "tmux": ("tmux", "TmuxCluster"),
    "subproc": ("subproc", "SubprocCluster"),
    "docker": ("docker", "DockerCluster"),
}


class Cluster(ExperimentQueries):
    """Where experiments run. `Cluster.new` creates one by its name."""

    runs_on: ClassVar[str] = "local"
    """The backend, unless CALLSHEET_ON names another."""
    detached: ClassVar[bool] = True
    """Whether a launched experiment keeps running when the script ends."""
    _ExperimentClass: ClassVar[type[ExperimentSpec]] = ExperimentSpec

    @classmethod
    def new(cls, backend: str, **kwargs: Any) -> Any:
        """The cluster of that name: kubernetes, kube, tmux, subproc or docker."""
        if backend.lower() not in _CLUSTERS:
            raise UserError(f"there is no cluster {backend!r}", fix=f"choose one of: {', '.join(_CLUSTERS)}")
        module, name = _CLUSTERS[backend.lower()]
        return getattr(importlib.import_module(f"callsheet.compat.symphony.{module}"), name)(**kwargs)

    def _backend(self) -> Backend:
        return backend(default_backend(self.runs_on))

    def new_experiment(self, *args: Any, **kwargs: Any) -> Any:
        """A new spec."""
        return self._ExperimentClass(*args, **kwargs)

    def launch(self, spec: ExperimentSpec, force: bool = False, dry_run: bool = False) -> Run | None:
        """Start an experiment and return; it keeps running when the script ends. `force` replaces one of the same name."""
        experiment = spec.to_callsheet().validate()
        target = self._backend()
        if dry_run:
            print(target.render(experiment.spec, base=experiment.base))
            return None
        self._stop_existing(spec.name, target, force)
        run = target.start(
            experiment.spec, base=experiment.base, source=experiment.to_yaml(), detach=self.detached
        )
        # The command line uses the backend of the user's configuration, whatever the script uses.
        usual = default_backend(user_config.load().on or "local")
        there = "" if target.name == usual else f" --on {target.name}"
        print(
            f"launched {run.experiment}/{run.id}\n  callsheet status{there} {run.id}\n"
            f"  callsheet logs{there} {run.id} -f\n  callsheet stop{there} {run.id}"
        )
        return run

    def _stop_existing(self, name: str, target: Backend, force: bool) -> None:
        for status in self._known(target):
            if status.experiment != name or status.done:
                continue
            if not force:
                raise UserError(
                    f"experiment {name!r} is already running as {status.run}",
                    fix=f"stop it with cluster.delete({name!r}), or launch with force=True",
                )
            run = target.find(status.run)
            run.stop(reason="replaced by a new launch")
            run.wait()

    def _known(self, target: Backend) -> list[Status]:
        """The runs of the backend; if there is no cluster, the error suggests this machine."""
        try:
            return target.runs()
        except UserError as error:
            if target.on_this_machine or BACKEND_VARIABLE in os.environ:
                raise
            here = f"run the same script on this machine: {BACKEND_VARIABLE}=local python {sys.argv[0] or 'SCRIPT'}"
            raise UserError(error.message, fix=f"{error.fix}; or {here}" if error.fix else here) from error

    def launch_batch(self, experiment_specs: Iterable[ExperimentSpec]) -> list[Run | None]:
        """Start several experiments."""
        return [self.launch(spec) for spec in experiment_specs]

    def delete(self, experiment_name: str) -> None:
        """Stop an experiment. Its results stay; `callsheet delete` removes them."""
        run = self._run(experiment_name)
        if not run.status().done:
            run.stop(reason="deleted by a script")
        run.wait()

    def delete_batch(self, experiments: Iterable[str]) -> None:
        """Stop several experiments."""
        for name in experiments:
            self.delete(name)

    def set_experiment(self, experiment_name: str) -> None:
        """Not supported: there is no current experiment."""
        raise no_counterpart(
            "set_experiment", "there is no current experiment", "name the experiment in each call"
        )

    def current_experiment(self) -> str:
        """Not supported: there is no current experiment."""
        raise no_counterpart(
            "current_experiment", "there is no current experiment", "name the experiment in each call"
        )
