"""The variables that DI-orchestrator sets, with placeholders for their values, and texts that refer to variables.

Two things have no placeholder: a rank that counts over several tasks, and a list of hosts without their ports. If a job
needs them, a line of shell before the program's own command computes them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from callsheet import contract
from callsheet.plan.template import escape
from callsheet.spec.yaml_tree import Loc

COORDINATOR = "coordinator"
_REFERENCE = re.compile(r"\$(?:(?P<dollar>\$)|\((?P<name>[^()]*)\))")


@dataclass(frozen=True, slots=True)
class Task:
    """One kind of pod of a DIJob: a role."""

    name: str
    named: Loc
    """Location of that name."""
    template: Loc
    """Location of its pod template."""
    port: int
    """The port that DI's own processes of this kind listen on."""
    replicas: int = 1
    listens: bool = True
    """Whether its processes are known to listen on that port."""
    fields: dict[str, Any] = field(default_factory=dict)
    """Fields of the role besides its pod."""

    @property
    def alone(self) -> bool:
        """Whether there is one replica, now and later."""
        return self.replicas == 1 and "scale" not in self.fields


@dataclass(frozen=True, slots=True)
class Variables:
    """DI's variables of one task."""

    entries: dict[str, Any]
    """By name: the value, a template, or a `valueFrom`."""
    late: tuple[str, ...] = ()
    """Those that `prelude` sets."""
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
    """One host has a placeholder of its own; several come with their ports."""
    return f"{{{task.name}.host}}" if task.alone else f"{{{task.name}.all}}"


def translate(
    text: str, endpoints: Collection[str], known: Mapping[str, str | None]
) -> tuple[str, list[str]]:
    """A text as a template that yields what Kubernetes would have made of it, and the references that cannot be resolved.

    Kubernetes replaces ``$(NAME)`` by a variable's value and ``$$`` by ``$``; Callsheet fills in placeholders instead.
    `known`: the container's variables as templates; None for those whose value is known only at the start.
    """
    made, position, unresolved = "", 0, []
    for match in _REFERENCE.finditer(text):
        made += escape(text[position : match.start()], endpoints)
        position = match.end()
        name = match["name"]
        value = known.get(name) if name else None
        if match["dollar"]:
            made += "$"
        elif value is not None:
            made += value
        else:
            made += escape(match[0], endpoints)
            unresolved += [name] if name in known else []
    return made + escape(text[position:], endpoints), unresolved
