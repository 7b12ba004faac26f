"""The variables that DI-orchestrator gives to its processes, said with Callsheet's own words in braces.

Two things cannot be said in braces: a rank that counts over several tasks, and a list of hosts without their ports.
Where a job needs them, a line of shell before the program's own command works them out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from callsheet import contract
from callsheet.spec.yaml_tree import Loc

COORDINATOR = "coordinator"


@dataclass(frozen=True, slots=True)
class Task:
    """One kind of pod of a DIJob: a role."""

    name: str
    named: Loc
    """Where that name stands."""
    template: Loc
    """Where its pod template stands."""
    port: int
    """The port that DI's own processes of this kind listen on."""
    replicas: int = 1
    listens: bool = True
    """Whether its processes are known to listen on that port."""
    fields: dict[str, Any] = field(default_factory=dict)
    """What the role has besides its pod."""

    @property
    def alone(self) -> bool:
        """Whether there is one replica, now and later."""
        return self.replicas == 1 and "scale" not in self.fields


@dataclass(frozen=True, slots=True)
class Variables:
    """DI's variables of one task."""

    entries: dict[str, Any]
    """By name: the value, a template; or where Kubernetes takes it from."""
    late: tuple[str, ...] = ()
    """Those that `prelude` makes or corrects."""
    prelude: str = ""
    """Shell that must run before the program."""


def version_1(tasks: Sequence[Task], task: Task) -> Variables:
    """What DI-orchestrator 0.x sets."""
    entries: dict[str, Any] = {
        "KUBERNETES_POD_NAMESPACE": {"fieldRef": {"fieldPath": "metadata.namespace"}},
        "KUBERNETES_POD_NAME": "{experiment}-{role}-{index}",
        "KUBERNETES_COORDINATOR_URL": f"{{{COORDINATOR}.addr}}",
        f"{task.name.upper()}_PORT": f"{{{task.name}.port}}",
    }
    return Variables(entries)


def version_2(tasks: Sequence[Task], task: Task, job: str) -> Variables:
    """What DI-orchestrator 1.x sets. `job`: the job's id."""
    before = sum(other.replicas for other in tasks[: tasks.index(task)])
    entries: dict[str, Any] = {"DI_JOB_ID": job}
    lines: list[str] = []
    if task.alone:
        entries["DI_RANK"] = str(before)
    elif before == 0:
        entries["DI_RANK"] = "{index}"
    else:
        lines.append(f"export DI_RANK=$(({before} + {contract.INDEX}))")
    late = ["DI_RANK"] if lines else []
    everyone = {"DI_NODES": tasks} | {
        f"DI_{other.name.upper().replace('-', '_')}_NODES": [other] for other in tasks
    }
    for name, members in everyone.items():
        entries[name] = ",".join(_hosts(member) for member in members)
        if not all(member.alone for member in members):
            lines.append(f"""export {name}="$(echo "${name}" | sed 's/:[0-9]*//g')\"""")
            late.append(name)
    prelude = "\n".join([*lines, 'exec "$0" "$@"']) if lines else ""
    return Variables(entries, tuple(late), prelude)


def _hosts(task: Task) -> str:
    """One host can be said exactly; several come with their ports."""
    return f"{{{task.name}.host}}" if task.alone else f"{{{task.name}.all}}"
