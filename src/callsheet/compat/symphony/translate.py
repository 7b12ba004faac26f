"""Translate a Symphony experiment into a Callsheet one.

A process is a role with one container; a group is a role whose first process is the main one: when that ends, the
group has ended. (In Symphony no process of a group is special.) Symphony has no placeholders, so every brace
in a script's text is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from callsheet.compat.symphony.spec import ExperimentSpec, ProcessGroupSpec, ProcessSpec
from callsheet.errors import UserError
from callsheet.plan.template import escape
from callsheet.sdk import Container, Experiment, Role

ROLE_VARIABLE = "SYMPHONY_ROLE"


def translate(spec: ExperimentSpec) -> Experiment:
    """The equivalent Callsheet experiment."""
    if not spec.list_all_processes():
        raise UserError(f"experiment {spec.name!r} has no process", fix="add one with new_process")
    ports = _ports(spec)
    made = Experiment(spec.name, base=spec.base, **_experiment_fields(spec))
    volumes = _Volumes(made)
    for group in spec.list_process_groups():
        if not group.processes:
            raise UserError(f"group {group.name!r} has no process", fix="add one with new_process")
        role = made.role(group.name, **group.pod_fields())
        volumes.declare(group)
        for process in group.list_processes():
            names = volumes.declare(process, group)
            _fill(role.container(process.name), process, ports, names, spec.expose_type)
    for process in spec.list_processes():
        role = made.role(process.name, **process.pod_fields())
        _fill(role, process, ports, volumes.declare(process), spec.expose_type)
    return made


def _experiment_fields(spec: ExperimentSpec) -> dict[str, Any]:
    folder = getattr(spec, "start_dir", None)
    return {"workdir": str(folder)} if folder else {}


def _ports(spec: ExperimentSpec) -> dict[str, int | None]:
    """A port for every service: the one that was given, else the next of the script's range, else None."""
    given: dict[str, int | None] = {}
    for process in spec.list_all_processes():
        for name, port in (*process.binded_services.items(), *process.exposed_services.items()):
            if port is not None and given.get(name) not in (None, port):
                raise UserError(
                    f"service {name!r} has two ports, {given[name]} and {port}", fix="give it one port"
                )
            given[name] = given.get(name) if port is None else port
    if spec.port_range is None:
        return given
    free = [port for port in spec.port_range if port not in given.values()]
    wanting = [name for name, port in given.items() if port is None]
    if len(free) < len(wanting):
        raise UserError(
            f"port_range has {len(free)} free ports for {len(wanting)} services",
            fix="give a larger port_range",
        )
    return given | dict(zip(wanting, free, strict=False))


def _fill(
    target: Role | Container,
    process: ProcessSpec,
    ports: Mapping[str, int | None],
    volumes: Mapping[str, str],
    expose_type: Any,
) -> None:
    """Give a role or a container what the process says."""
    fields = process.container_fields()
    for mount in fields.get("volume_mounts", []):
        mount["name"] = volumes.get(mount["name"], mount["name"])
    for key in ("command", "args"):
        if key in fields:
            fields[key] = [escape(text, ports) if isinstance(text, str) else text for text in fields[key]]
    own = {entry["name"]: entry for entry in fields.pop("env", [])}
    for entry in own.values():
        if isinstance(entry.get("value"), str):
            entry["value"] = escape(entry["value"], ports)
    target.set(**fields)
    target.binds({n: ports[n] for n in process.binded_services if n not in process.exposed_services})
    target.connects(*process.connected_services)
    target.exposes({name: ports[name] for name in process.exposed_services}, type=expose_type)
    target.env(_addresses(process))
    for name, entry in own.items():
        target.env({name: entry["valueFrom"] if "valueFrom" in entry else entry.get("value", "")})


def _addresses(process: ProcessSpec) -> dict[str, str]:
    """SYMPH_<NAME>_HOST, _PORT and _ADDR for each of the process's services, and its own name."""
    env = {ROLE_VARIABLE: process.name}
    for name in {**process.binded_services, **process.connected_services, **process.exposed_services}:
        prefix = f"SYMPH_{name.upper().replace('-', '_')}"
        env |= {f"{prefix}_{word.upper()}": f"{{{name}.{word}}}" for word in ("host", "port", "addr")}
    return env


class _Volumes:
    """Volumes are a pod's own in Symphony and the experiment's in Callsheet: namesakes that differ are renamed."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        self.declared: dict[str, dict[str, Any]] = {}

    def declare(
        self, owner: ProcessSpec | ProcessGroupSpec, group: ProcessGroupSpec | None = None
    ) -> dict[str, str]:
        """Declare the owner's volumes; what each is called in the experiment."""
        names = {}
        for name, source in {**(group.volumes() if group else {}), **owner.volumes()}.items():
            chosen = name
            if self.declared.setdefault(name, source) != source:
                chosen = f"{(group or owner).name}-{name}"
                self.declared[chosen] = source
            names[name] = chosen
            self.experiment.volume(chosen, **_as_fields(source))
        return names


def _as_fields(source: Mapping[str, Any]) -> Any:
    """Kubernetes' keys of a volume as keywords."""
    snake = {key: re.sub(r"(?<!^)([A-Z]+)", r"_\1", key).lower() for key in source}
    return {snake[key]: value for key, value in source.items()}
