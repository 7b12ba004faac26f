"""The local backend: runs experiments as processes of this machine.

What plans and starts them is imported only when asked for, so that looking at runs stays quick.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from callsheet.backends.base import Place, PlannedChange, Status
from callsheet.backends.local import registry
from callsheet.backends.local.client import LocalRun
from callsheet.errors import UserError

if TYPE_CHECKING:
    from callsheet.plan.model import Plan
    from callsheet.spec.experiment import Experiment


class LocalBackend:
    """Runs experiments as processes of this machine."""

    name = "local"
    on_this_machine = True

    def __init__(self, place: Place | None = None) -> None:
        if place:
            raise UserError(
                "--context, --namespace and -A are for clusters, and the local backend has none",
                fix="leave them out, or add --on kubernetes",
            )

    def plan(self, experiment: Experiment, *, base: Path) -> Plan:
        """The plan, with nothing started; its addresses are placeholders for those that a run would reserve."""
        from callsheet.backends.local.launch import plan

        return plan(experiment, base)

    def render(self, experiment: Experiment, *, base: Path) -> str:
        """The plan as YAML."""
        import yaml

        plan = self.plan(experiment, base=base).to_data()
        text: str = yaml.safe_dump(plan, sort_keys=False, allow_unicode=True, width=100)
        return text

    def unused(self, experiment: Experiment) -> list[str]:
        """Fields of the file that mean nothing on one machine."""
        from callsheet.backends.local.unused import unused_fields

        return unused_fields(experiment)

    def check(self, experiment: Experiment, *, base: Path) -> None:
        """Raise if this machine cannot run it; starts nothing."""
        from callsheet.backends.local.launch import check

        check(experiment, base)

    def preview(self, experiment: Experiment, *, base: Path) -> list[PlannedChange]:
        """Every start makes a new run."""
        sizes = ", ".join(f"{role.replicas} {role.name}" for role in experiment.spec.roles)
        return [PlannedChange("create", "Experiment", experiment.name, detail=sizes)]

    def start(
        self, experiment: Experiment, *, base: Path, source: str = "", detach: bool = False
    ) -> LocalRun:
        """Start it. Unless detached, the run stops when this process exits."""
        from callsheet.backends.local.launch import launch

        return launch(experiment, base, source, detach=detach)

    def runs(self) -> list[Status]:
        """Known runs, newest first."""
        statuses = []
        for folder in registry.known_runs().values():
            try:
                statuses.append(LocalRun(folder).status())
            except UserError:
                continue  # its folder is being made or removed at this moment
        return statuses

    def find(self, reference: str) -> LocalRun:
        """A run by its id, the beginning of its id, `experiment/id`, or the experiment's name."""
        return LocalRun(registry.find_folder(reference))
