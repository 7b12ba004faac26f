"""Roles and their containers, built call by call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self, Unpack

from callsheet.errors import UserError
from callsheet.sdk import values
from callsheet.sdk.fluent import Fluent
from callsheet.sdk.options import ContainerOptions, RoleOptions
from callsheet.spec import experiment as model


class Container(Fluent[model.Container]):
    """One process of a group."""

    def __init__(self, name: str, where: str, fields: Mapping[str, Any]) -> None:
        self._where = f"{where}.containers[{name}]"
        self._model = values.checked(
            model.Container, {"name": name} | values.normal(fields, self._where), self._where
        )

    @property
    def spec(self) -> model.Container:
        """The container as checked data."""
        return self._model

    def set(self, **fields: Unpack[ContainerOptions]) -> Self:
        """Set any field of the schema."""
        return self._change(**fields)


class Role(Fluent[model.Role]):
    """A kind of process; made with `Experiment.role`."""

    def __init__(self, name: str, fields: Mapping[str, Any]) -> None:
        self._where = f"spec.roles[{name}]"
        self._model = values.checked(
            model.Role, {"name": name} | values.normal(fields, self._where), self._where
        )
        self._containers: list[Container] = []

    @classmethod
    def from_spec(cls, spec: model.Role) -> Role:
        """A builder that starts from checked data."""
        role = cls(spec.name, values.fields_of(spec, {"name", "containers"}))
        for container in spec.containers:
            given = values.fields_of(container, {"name"})
            role._containers.append(Container(container.name, role._where, given))
        return role

    @property
    def spec(self) -> model.Role:
        """The role as checked data."""
        if not self._containers:
            return self._model
        containers = [container.spec for container in self._containers]
        return values.checked(
            model.Role, values.fields_of(self._model) | {"containers": containers}, self._where
        )

    @property
    def containers(self) -> tuple[Container, ...]:
        """The group's containers, the main one first; empty if the role has one container."""
        return tuple(self._containers)

    def set(self, **fields: Unpack[RoleOptions]) -> Self:
        """Set any field of the schema."""
        return self._change(**fields)

    def container(self, name: str, **fields: Unpack[ContainerOptions]) -> Container:
        """Make the role a group and add a process to it. The first is the main one."""
        if any(container.name == name for container in self._containers):
            raise UserError(f"role {self.name!r} already has a container {name!r}", fix="choose another name")
        made = Container(name, self._where, fields)
        self._containers.append(made)
        return made

    def scale(self, min: int, max: int) -> Self:
        """Make the role elastic: its size may change within these bounds while it runs."""
        return self._change(scale={"min": min, "max": max})

    def restart(self, policy: Literal["Always", "OnFailure", "Never"], limit: int | None = None) -> Self:
        """What happens when a replica ends, and how often it may fail."""
        return self._change(restart={"policy": policy} | ({} if limit is None else {"limit": limit}))

    def grace(self, period: str) -> Self:
        """Time between SIGTERM and SIGKILL: ``grace("10s")``."""
        return self._change(termination_grace_period=period)

    def node_selector(self, given: Mapping[str, str] | None = None, /, **labels: str) -> Self:
        """Labels that a node must have to run the pods."""
        return self._change(node_selector={**self._model.node_selector, **(given or {}), **labels})

    def toleration(
        self,
        key: str | None = None,
        *,
        operator: Literal["Exists", "Equal"] | None = None,
        value: str | None = None,
        effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None,
        toleration_seconds: int | None = None,
    ) -> Self:
        """Tolerate a taint."""
        given = {
            "key": key,
            "operator": operator,
            "value": value,
            "effect": effect,
            "toleration_seconds": toleration_seconds,
        }
        toleration = {name: content for name, content in given.items() if content is not None}
        return self._change(tolerations=[*self._model.tolerations, toleration])

    def labels(self, given: Mapping[str, str] | None = None, /, **labels: str) -> Self:
        """Labels of the pods."""
        return self._change(labels={**self._model.labels, **(given or {}), **labels})

    def annotations(self, given: Mapping[str, str] | None = None, /, **annotations: str) -> Self:
        """Annotations of the pods."""
        return self._change(annotations={**self._model.annotations, **(given or {}), **annotations})

    def image_pull_secrets(self, *names: str) -> Self:
        """Secrets for private registries."""
        return self._change(
            image_pull_secrets=[*self._model.image_pull_secrets, *({"name": n} for n in names)]
        )
