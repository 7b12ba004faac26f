"""One container of a DIJob's pod template: its command, variables and ports as fields of an experiment."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from callsheet.compat.dijob.environment import Task, Variables, translate
from callsheet.compat.dijob.job import DIJob
from callsheet.compat.dijob.volumes import Volumes
from callsheet.spec.kubernetes import Probe
from callsheet.spec.schema import keys
from callsheet.spec.yaml_tree import Loc, MappingNode, ScalarNode

PORT_NAME = "di-port"

_SAME = ("image", "imagePullPolicy", "envFrom", "resources", "stdin", "tty")
_PATCHED = (
    "lifecycle",
    "livenessProbe",
    "resizePolicy",
    "restartPolicy",
    "startupProbe",
    "stdinOnce",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "volumeDevices",
    "workingDir",
)
_OWN = ("name", "command", "args", "env", "ports", "readinessProbe", "securityContext", "volumeMounts")
_READY = {"exec": {"command": ["true"]}}
"""Nobody promised to listen on the port; DI considered such a pod ready as soon as it ran."""


class ContainerReader:
    """Reads the containers of one role."""

    def __init__(self, job: DIJob, endpoints: Collection[str], volumes: Volumes, carries_code: bool) -> None:
        self.job = job
        self.endpoints = endpoints
        self.volumes = volumes
        self.carries_code = carries_code

    def read(self, loc: Loc, task: Task, variables: Variables, *, main: bool) -> dict[str, Any]:
        """The fields of a container."""
        job = self.job
        job.only(loc, (*_SAME, *_PATCHED, *_OWN))
        made, patch = job.given(loc, _SAME), job.given(loc, _PATCHED)
        env, known = self._env((*loc, "env"), variables)
        made |= self._command(loc, variables, known)
        made["env"] = env
        made |= self._endpoints(loc, task, main=main)
        self._probe(loc, task, made, patch, main=main)
        mounts, odd = self.volumes.mounts((*loc, "volumeMounts"), task.name)
        if mounts:
            made["volumeMounts"] = mounts
        if odd:
            patch["volumeMounts"] = odd
        security = (*loc, "securityContext")
        made["securityContext"] = {"readOnlyRootFilesystem": False} | job.given(security, job.keys(security))
        self._folder(loc, patch)
        return made | ({"containerPatch": patch} if patch else {})

    def _folder(self, loc: Loc, patch: dict[str, Any]) -> None:
        """DI's programs start in the image's own folder, unless the workdir is copied."""
        if "workingDir" in patch:
            self.job.warn(
                (*loc, "workingDir"), "works on Kubernetes only; on a laptop, spec.workdir sets the folder"
            )
        elif not self.carries_code:
            patch["workingDir"] = ""  # the image's own

    def _env(self, loc: Loc, variables: Variables) -> tuple[list[Any], dict[str, str | None]]:
        """The variables, DI's own first, and what is known of their values."""
        known: dict[str, str | None] = {}
        entries: list[Any] = []
        for name, value in variables.entries.items():
            source = isinstance(value, dict)
            entries.append({"name": name, "valueFrom" if source else "value": value})
            known[name] = None if source or name in variables.late else value
        known |= dict.fromkeys(variables.late)
        for place in self.job.items(loc):
            name = self.job.text((*place, "name"))
            if name in known and name in (*variables.entries, *variables.late):
                self.job.warn((*place, "name"), f"is ignored: {name} is set by DI", key=False)
                continue
            entries.append(self._variable(place, name, known))
        return entries, known

    def _variable(self, loc: Loc, name: str, known: dict[str, str | None]) -> Any:
        node = self.job.node((*loc, "value"))
        item = self.job.nearest(loc)
        known[name] = None
        if self.job.node((*loc, "valueFrom")) is not None or not isinstance(item, MappingNode):
            return item
        if node is None:
            known[name] = ""
            return {"name": self.job.nearest((*loc, "name")), "value": ""}
        made = self._text((*loc, "value"), known)
        if made is None:
            return item
        known[name] = made
        return {"name": self.job.nearest((*loc, "name")), "value": made}

    def _command(self, loc: Loc, variables: Variables, known: dict[str, str | None]) -> dict[str, list[Any]]:
        made = {}
        for key in ("command", "args"):
            words = []
            for place in self.job.items((*loc, key)):
                text = self._text(place, known)
                words.append(self.job.nearest(place) if text is None else text)
            if words:
                made[key] = words
        if variables.prelude and "command" in made:
            made["command"] = ["/bin/sh", "-c", variables.prelude, *made["command"]]
        elif variables.prelude:
            self.job.warn(
                loc,
                f"without a command {' and '.join(variables.late)} cannot be computed: ranks count within the task,"
                " and hosts have their ports",
                "set command to the image's entrypoint",
                key=False,
            )
        return made

    def _text(self, loc: Loc, known: dict[str, str | None]) -> str | None:
        """A text as a template; None for what is no text, which is reported later."""
        node = self.job.node(loc)
        if not isinstance(node, ScalarNode) or not isinstance(node.value, str):
            return None
        made, unresolved = translate(node.value, self.endpoints, known)
        for name in dict.fromkeys(unresolved):
            self.job.warn(
                loc,
                f"$({name}) is not replaced: its value is known only when the process starts",
                f"use ${name} in a shell",
                key=False,
            )
        return made

    def _endpoints(self, loc: Loc, task: Task, *, main: bool) -> dict[str, Any]:
        binds: list[Any] = [{"name": task.name, "port": task.port}] if main else []
        for place in self.job.items((*loc, "ports")):
            name = self.job.text((*place, "name"))
            number = self.job.number((*place, "containerPort"), 1, least=1)
            if (self.job.text((*place, "protocol")) or "TCP") != "TCP":
                self.job.warn((*place, "protocol"), "is ignored: endpoints are TCP ports")
                continue
            if self.job.node((*place, "hostPort")) is not None:
                self.job.warn((*place, "hostPort"), "is ignored: use exposes for a port that people reach")
            if main and (name == PORT_NAME or number == task.port):
                binds[0]["port"] = self.job.nearest((*place, "containerPort"))
            else:
                shown = name or str(number)
                binds.append(
                    {"name": f"{task.name}-{shown}", "port": self.job.nearest((*place, "containerPort"))}
                )
        others = [name for name in self.endpoints if not main or name != task.name]
        return ({"binds": binds} if binds else {}) | ({"connects": others} if others else {})

    def _probe(
        self, loc: Loc, task: Task, made: dict[str, Any], patch: dict[str, Any], *, main: bool
    ) -> None:
        given = self.job.keys((*loc, "readinessProbe"))
        if given:
            odd = not set(given) <= set(keys(Probe))
            (patch if odd else made)["readinessProbe"] = self.job.nearest((*loc, "readinessProbe"))
        elif main and not task.listens and self._port(loc) is None:
            made["readinessProbe"] = _READY

    def _port(self, loc: Loc) -> Loc | None:
        """The location of DI's port among the container's ports."""
        ports = self.job.items((*loc, "ports"))
        return next((place for place in ports if self.job.text((*place, "name")) == PORT_NAME), None)
