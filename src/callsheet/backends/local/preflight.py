"""Checks this machine before anything starts, and reports every problem at once."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from callsheet import contract
from callsheet.backends.local.supervisor.listening import ANY_HOST, holder, is_listening, listeners
from callsheet.backends.local.supervisor.processes import find_program
from callsheet.backends.local.supervisor.references import folder, resolve_references
from callsheet.errors import Problem, did_you_mean
from callsheet.plan.model import ContainerPlan, Plan, RolePlan
from callsheet.spec.experiment import Experiment

_UNPRIVILEGED = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")


def check_machine(experiment: Experiment, plan: Plan, largest: Plan, gpus: list[str]) -> list[Problem]:
    """Why this plan cannot run here. `largest`: the same with no role empty, for what a later scaling will need."""
    if not os.path.isdir(plan.workdir):
        return [
            Problem("spec.workdir.path", f"there is no folder {plan.workdir!r}", "create it, or name another")
        ]
    return [
        *_programs(largest),
        *_ports(plan),
        *_references(plan),
        *_volumes(experiment, plan),
        *_gpus(plan, gpus),
    ]


def _place(role: RolePlan, container: ContainerPlan) -> str:
    inside = f".containers[{container.name}]" if len(role.containers) > 1 else ""
    return f"spec.roles[{role.name}]{inside}"


def _containers(plan: Plan) -> Iterator[tuple[RolePlan, int, ContainerPlan]]:
    for role in plan.roles:
        for number, container in enumerate(role.containers):
            yield role, number, container


def _programs(plan: Plan) -> Iterator[Problem]:
    for role, number, container in _containers(plan):
        place = f"{_place(role, container)}.command"
        for replica in role.replicas[:1]:
            command = replica.containers[number].command
            if not command:
                yield Problem(
                    place, "there is no command, and a laptop has no image to take one from", "give `command`"
                )
                continue
            env = os.environ | plan.environment(role, replica, number)
            try:
                program = os.path.join(plan.workdir, find_program(command[0], env))
            except FileNotFoundError:
                yield Problem(
                    place, f"there is no program {command[0]!r} on PATH", _similar_program(command[0])
                )
                continue
            if not os.path.isfile(program):
                yield Problem(
                    place, f"there is no program {program!r}", "check the path; it is relative to `workdir`"
                )
            elif not os.access(program, os.X_OK):
                fix = f"chmod +x it, or name its interpreter: [python, {command[0]}]"
                yield Problem(place, f"{program!r} is not executable", fix)


def _similar_program(name: str) -> str:
    known: set[str] = set()
    for folder_of_path in os.environ.get("PATH", os.defpath).split(os.pathsep):
        with contextlib.suppress(OSError):
            known.update(os.listdir(folder_of_path))
    return did_you_mean(name, known, "install it, or write its whole path", cutoff=0.75)


def _ports(plan: Plan) -> Iterator[Problem]:
    table = listeners()
    lowest = int(_UNPRIVILEGED.read_text()) if _UNPRIVILEGED.exists() and os.geteuid() != 0 else 0
    for role, number, container in _containers(plan):
        for endpoint, shared in container.ports.items():
            kind = "exposes" if endpoint in container.exposed else "binds"
            place = f"{_place(role, container)}.{kind}[{endpoint}].port"
            if shared < lowest:
                yield Problem(
                    place, f"only root may listen on port {shared}", f"choose a port from {lowest} up"
                )
                continue
            for replica in role.replicas:
                port = replica.containers[number].ports.get(endpoint, shared)
                if is_listening(table, replica.host, port):
                    yield _taken(place, table, replica.host, port)
                    break


def _taken(place: str, table: dict[tuple[str, int], int], host: str, port: int) -> Problem:
    inode = next(table[there, port] for there in (host, *ANY_HOST) if (there, port) in table)
    who = holder(inode)
    by = f"held by {who}" if who else "held by a process that this user cannot see"
    where = "on all addresses" if (host, port) not in table else f"on {host}"
    return Problem(place, f"port {port} is taken {where}: {by}", "stop that process or choose another port")


def _references(plan: Plan) -> Iterator[Problem]:
    for role, _, container in _containers(plan):
        for ref in container.env_refs:
            path = os.path.join(folder(plan.workdir, ref.source, ref.name), ref.key)
            kind = "Secret" if ref.source == "secret" else "ConfigMap"
            try:
                resolve_references([ref], plan.workdir)
            except FileNotFoundError:
                fix = f"on a laptop a {kind} is a folder with one file per key: make {path}"
                yield Problem(f"{_place(role, container)}.env", f"{kind} {ref.name!r} is missing here", fix)
            except OSError as error:
                message = f"{kind} {ref.name!r} cannot be read: {error.strerror}: {error.filename}"
                yield Problem(
                    f"{_place(role, container)}.env", message, "mount it as a volume, or fix the file"
                )


def _volumes(experiment: Experiment, plan: Plan) -> Iterator[Problem]:
    """What a mounted volume refers to must exist, unless Callsheet creates it."""
    used = {m.name for role in experiment.spec.roles for c in role.group for m in c.volume_mounts}
    for volume in [v for v in experiment.spec.volumes if v.name in used]:
        place = f"spec.volumes[{volume.name}]"
        host = volume.host_path
        if host and host.type in ("Directory", "File") and not os.path.exists(host.path):
            message = f"there is no {host.path!r} on this machine"
            yield Problem(f"{place}.hostPath.path", message, "create it, or name another path")
        for kind, source, name, optional in (
            *([("Secret", "secret", s.secret_name, s.optional)] if (s := volume.secret) else []),
            *([("ConfigMap", "configmap", c.name, c.optional)] if (c := volume.config_map) else []),
        ):
            path = folder(plan.workdir, source, name)
            if not optional and not os.path.isdir(path):
                fix = f"on a laptop a {kind} is a folder with one file per key: make {path}"
                yield Problem(place, f"{kind} {name!r} is missing here", fix)


def _gpus(plan: Plan, gpus: list[str]) -> Iterator[Problem]:
    asking = [(role, c) for role, _, c in _containers(plan) if c.gpus]
    asked = sum(container.gpus * len(role.replicas) for role, container in asking)
    if asked > len(gpus):
        place = f"{_place(*asking[0])}.resources.limits[{contract.GPU_RESOURCE}]"
        who = " and ".join(dict.fromkeys(role.name for role, _ in asking))
        message = f"{who} needs {asked} GPUs, and this machine has {len(gpus)}"
        yield Problem(place, message, "request fewer, or none")


def machine_gpus() -> list[str]:
    """The GPUs that runs may use: those of CUDA_VISIBLE_DEVICES where it is set, else all that the driver lists."""
    chosen = os.environ.get(contract.GPUS)
    if chosen is not None:
        return [device for device in chosen.split(",") if device]
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    try:
        return list(_listed(tool))
    except (OSError, subprocess.SubprocessError):
        return []


@cache
def _listed(tool: str) -> tuple[str, ...]:
    """The driver's answer. It takes up to a second, so it is cached; failures are not."""
    query = [tool, "--query-gpu=index", "--format=csv,noheader"]
    answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
    return tuple(answer.stdout.split())
