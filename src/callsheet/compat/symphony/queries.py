"""Symphony's calls that query an experiment or reach into it; `engine` has those that start and stop one.

The calls take an experiment's name, which means the newest run of that name.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypedDict

from callsheet.backends.base import Backend, ContainerStatus, LogQuery, ReplicaStatus, Run, Status, Target
from callsheet.errors import RetryError, UserError
from callsheet.spec.quantity import parse_duration


class Description(TypedDict):
    """One process, as Symphony describes it."""

    Ready: bool
    Restarts: int
    State: str


class ExperimentQueries(ABC):
    """What a cluster answers about its experiments."""

    @abstractmethod
    def _backend(self) -> Backend:
        """The backend that the experiments run on."""

    def list_experiments(self) -> list[str]:
        """Names of the experiments that run now."""
        return sorted({status.experiment for status in self._backend().runs() if not status.done})

    def fuzzy_match_experiment(self, name: str) -> str | list[str]:
        """The experiment of that name, or those whose names begin with it, then those that contain it."""
        return _fuzzy(name, self.list_experiments())

    def fuzzy_match_process(self, name: str, experiment_name: str) -> str | list[str]:
        """The same for the processes of an experiment."""
        return _fuzzy(
            name, [p for group in self.describe_experiment(experiment_name).values() for p in group]
        )

    def describe_experiment(self, experiment_name: str) -> dict[str | None, dict[str, Description]]:
        """Every process by its group: ``{"group": {"process": {...}}, None: {"lone": {...}}}``."""
        return _describe(self._run(experiment_name).status())

    def describe_process_group(self, experiment_name: str, process_group_name: str) -> dict[str, Description]:
        """The processes of one group."""
        groups = self.describe_experiment(experiment_name)
        if process_group_name not in groups:
            names = ", ".join(name for name in groups if name) or "none"
            raise UserError(
                f"experiment {experiment_name!r} has no group {process_group_name!r}",
                fix=f"choose one of: {names}",
            )
        return groups[process_group_name]

    def describe_process(
        self, experiment_name: str, process_name: str, process_group_name: str | None = None
    ) -> Description:
        """``{"Ready": ..., "Restarts": ..., "State": ...}`` of one process."""
        self._target(experiment_name, process_name, process_group_name)
        groups = self.describe_experiment(experiment_name)
        return groups[self._group(groups, process_name, process_group_name)][process_name]

    def get_log(
        self,
        experiment_name: str,
        process_name: str,
        process_group: str | None = None,
        follow: bool = False,
        since: float | str = 0,
        tail: int = 500,
        print_logs: bool = False,
    ) -> str:
        """The last lines of a process's output. `since`: seconds, or a duration such as ``5m``; 0 is the beginning."""
        target = self._target(experiment_name, process_name, process_group)
        seconds = parse_duration(since) if isinstance(since, str) else float(since)
        query = LogQuery([target], target.container, follow, tail if tail >= 0 else None, seconds or None)
        lines = []
        for line in self._run(experiment_name).logs(query):
            lines.append(line.text)
            if print_logs:
                print(line.text, flush=True)
        return "\n".join(lines)

    def get_log_when_alive(
        self,
        experiment_name: str,
        process_name: str,
        process_group: str | None = None,
        follow: bool = False,
        since: float | str = 0,
        tail: int = 500,
        print_logs: bool = False,
        sleep_interval: float = 10,
    ) -> str:
        """The same, after waiting for the process to start."""
        role = self._target(experiment_name, process_name, process_group).role
        for status in self._run(experiment_name).watch(interval=sleep_interval):
            if any(replica.role == role and replica.started for replica in status.replicas):
                break
        return self.get_log(experiment_name, process_name, process_group, follow, since, tail, print_logs)

    def exec_command(
        self,
        experiment_name: str,
        process_name: str,
        command: str | Sequence[str],
        process_group: str | None = None,
    ) -> int:
        """Run a command with the environment of a process; the command's exit code."""
        words = [command] if isinstance(command, str) else list(command)
        return self._run(experiment_name).exec(
            self._target(experiment_name, process_name, process_group), words
        )

    def login(self, experiment_name: str, process_name: str, process_group: str | None = None) -> int:
        """Open a shell with the environment of a process."""
        return self.exec_command(experiment_name, process_name, ["/bin/sh"], process_group)

    def transfer_file(
        self,
        experiment_name: str,
        src_path: str,
        dest_path: str,
        src_process: str | None = None,
        src_process_group: str | None = None,
        dest_process: str | None = None,
        dest_process_group: str | None = None,
    ) -> None:
        """Copy a file or a folder from or to a process; relative paths there begin in its working directory."""
        if (src_process is None) == (dest_process is None):
            raise UserError(
                "transfer_file copies between this machine and one process",
                fix="give src_process or dest_process",
            )
        run = self._run(experiment_name)
        if not self._backend().on_this_machine:
            raise UserError(
                "transfer_file works on this machine only",
                fix=f"callsheet cp {run.id} FROM TO, with ROLE/0:PATH for the side that is in the cluster",
            )
        # A process on this machine sees the same files: cp in its working directory resolves its relative paths.
        if src_process is not None:
            target = self._target(experiment_name, src_process, src_process_group)
            dest_path = os.path.abspath(dest_path)
        else:
            target = self._target(experiment_name, str(dest_process), dest_process_group)
            src_path = os.path.abspath(src_path)
        if run.exec(target, ["cp", "-R", "--", src_path, dest_path]) != 0:
            raise UserError(f"could not copy {src_path!r} to {dest_path!r}", fix="see the output of cp above")

    def external_url(self, experiment_name: str, service_name: str) -> str:
        """``host:port`` of an exposed service."""
        exposed = self._run(experiment_name).status().exposed
        if service_name not in exposed:
            known = ", ".join(exposed) or "none"
            raise UserError(
                f"experiment {experiment_name!r} exposes no service {service_name!r}",
                fix=f"choose one of: {known}",
            )
        if not exposed[service_name]:
            raise RetryError(f"the service {service_name!r} has no address yet", fix="try again later")
        return exposed[service_name]

    def _run(self, experiment_name: str) -> Run:
        return self._backend().find(experiment_name)

    def _group(
        self, groups: dict[str | None, dict[str, Description]], process: str, group: str | None
    ) -> str | None:
        """The group of a process; None if it is in none."""
        places = [
            name for name, processes in groups.items() if process in processes and group in (None, name)
        ]
        if len(places) == 1:
            return places[0]
        if places:
            raise UserError(
                f"{len(places)} groups have a process {process!r}",
                fix=f"give process_group, one of: {', '.join(str(place) for place in places)}",
            )
        known = ", ".join(
            f"{name}/{p}" if name else p for name, processes in groups.items() for p in processes
        )
        raise UserError(f"there is no process {process!r}", fix=f"choose one of: {known}")

    def _target(self, experiment_name: str, process: str, group: str | None) -> Target:
        place = self._group(self.describe_experiment(experiment_name), process, group)
        return Target(place or process, 0, process)


def _fuzzy(name: str, names: Sequence[str]) -> str | list[str]:
    if name in names:
        return name
    ordered = sorted(names, key=lambda other: (not other.startswith(name), other))
    return [other for other in dict.fromkeys(ordered) if name in other]


def _describe(status: Status) -> dict[str | None, dict[str, Description]]:
    """Every process by its group; processes in no group are under None."""
    groups: dict[str | None, dict[str, Description]] = {}
    for replica in status.replicas:
        alone = [container.name for container in replica.containers] == [replica.role]
        group = groups.setdefault(None if alone else replica.role, {})
        for container in replica.containers:
            group[container.name] = _description(replica, container, alone)
    return groups


def _description(replica: ReplicaStatus, container: ContainerStatus, alone: bool) -> Description:
    restarts = replica.restarts if alone else max(container.restarts, replica.restarts)
    return {"Ready": container.ready, "Restarts": restarts, "State": replica.phase}
