"""The contract's variables in a pod, and braces turned into Kubernetes' own ``$(NAME)``.

A pod template is the same for all replicas of a role and must not change when a role is scaled. So what differs by
replica comes through the downward API, and what scaling changes comes from the run's ConfigMap.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from callsheet import contract
from callsheet.backends.kubernetes import names
from callsheet.plan.endpoints import chosen_ports
from callsheet.plan.template import Placeholder, fill, parse
from callsheet.spec.experiment import Container, Experiment, Role

Env = list[dict[str, Any]]
_DOLLARS = re.compile(r"\$+(?=\(|\Z)|\${2,}")
"""Dollars that Kubernetes would take for an expression or for an escaped dollar, or that a placeholder may follow."""


class Wiring:
    """Who binds what, as the pods see it."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        self.name = experiment.name
        self.ports = chosen_ports(experiment, frozenset())
        self.binders: dict[str, Role] = {
            bind.name: role
            for role in experiment.spec.roles
            for container in role.group
            for bind in (*container.binds, *container.exposes)
        }

    def addresses(self, endpoint: str, replicas: int) -> list[str]:
        """Every replica's address behind an endpoint, in index order."""
        role, port = self.binders[endpoint].name, self.ports[endpoint]
        return [f"{names.host(self.name, role, i)}:{port}" for i in range(replicas)]

    def host(self, endpoint: str, role: Role) -> str:
        """The host that `_ADDR` names for a replica of a role."""
        binder = self.binders[endpoint]
        index = f"$({contract.INDEX})"
        if binder.name == role.name:
            return names.host(self.name, binder.name, index)
        fewest = binder.scale.min if binder.scale else binder.replicas
        if binder.most == 1:
            return names.host(self.name, binder.name, 0)
        if role.most <= fewest:
            return names.host(self.name, binder.name, index)
        # An index modulo a number cannot be written in a pod template: any of them, through the Service.
        return names.service(self.name, endpoint)


def container_env(wiring: Wiring, role: Role, container: Container, *, job: bool) -> Env:
    """All variables of a container: the contract's first, so that the user's may refer to them."""
    own = _contract(wiring, role, container, job=job)
    declared = {v.name: v for v in (*wiring.experiment.spec.env, *container.env)}
    for variable in declared.values():
        if variable.value_from is not None:
            own.append(variable.model_dump(exclude_unset=True))
        else:
            own.append({"name": variable.name, "value": expand(wiring, variable.value or "", container)})
    return own


def _contract(wiring: Wiring, role: Role, container: Container, *, job: bool) -> Env:
    config_map = names.config_map(wiring.name)
    index = names.INDEX_OF_JOB if job else names.INDEX_OF_STATEFUL_SET
    env: Env = [
        {"name": contract.EXPERIMENT, "value": wiring.name},
        _from_config_map(contract.RUN, config_map, contract.RUN),
        {"name": contract.ROLE, "value": role.name},
        {"name": contract.INDEX, "valueFrom": {"fieldRef": {"fieldPath": index}}},
        {"name": contract.CONTAINER, "value": container.name},
        _from_config_map(contract.REPLICAS, config_map, f"{contract.REPLICAS}.{role.name}"),
        _attempt(job=job),
        {"name": contract.ADDRESSES, "value": names.ADDRESSES},
        {"name": contract.KEYS, "value": names.KEYS},
    ]
    if not wiring.experiment.spec.encryption:
        env.append({"name": contract.ENCRYPTION, "value": contract.ENCRYPTION_OFF})
    if wiring.experiment.spec.storage:
        env.append(_from_config_map(contract.STORAGE, config_map, contract.STORAGE))
    bound = [bind.name for bind in (*container.binds, *container.exposes)]
    for endpoint in dict.fromkeys([*bound, *container.connects]):
        env += _endpoint(wiring, role, endpoint, bound=endpoint in bound)
    env.append({"name": "HOME", "value": "/tmp"})  # noqa: S108 - the one place that is writable by default
    return env


def _attempt(*, job: bool) -> dict[str, Any]:
    if job:
        return {"name": contract.ATTEMPT, "valueFrom": {"fieldRef": {"fieldPath": names.FAILURES_OF_JOB}}}
    return {"name": contract.ATTEMPT, "value": "0"}  # a StatefulSet counts nothing


def _from_config_map(variable: str, config_map: str, key: str) -> dict[str, Any]:
    return {"name": variable, "valueFrom": {"configMapKeyRef": {"name": config_map, "key": key}}}


def _endpoint(wiring: Wiring, role: Role, endpoint: str, *, bound: bool) -> Env:
    port = wiring.ports[endpoint]
    host = wiring.host(endpoint, role)
    variable = contract.endpoint_variable(endpoint, "")
    env: Env = [
        {"name": f"{variable}{contract.ENDPOINT_ADDR}", "value": f"{host}:{port}"},
        {"name": f"{variable}{contract.ENDPOINT_HOST}", "value": host},
        {"name": f"{variable}{contract.ENDPOINT_PORT}", "value": str(port)},
        _from_config_map(
            f"{variable}{contract.ENDPOINT_ALL}", names.config_map(wiring.name), all_key(endpoint)
        ),
    ]
    if bound:
        env.append({"name": f"{variable}{contract.ENDPOINT_BIND}", "value": f"0.0.0.0:{port}"})
    return env


def all_key(endpoint: str) -> str:
    """The key in the run's ConfigMap for the list of all addresses behind an endpoint."""
    return contract.endpoint_variable(endpoint, contract.ENDPOINT_ALL)


def expand(wiring: Wiring, text: str, container: Container) -> str:
    """A user's text for a pod template: our braces as ``$(NAME)``, the user's own dollars kept from expansion."""
    mounts = {mount.name: mount.mount_path for mount in container.volume_mounts}
    template = parse(text, wiring.binders)
    escaped = tuple(_DOLLARS.sub(r"\g<0>\g<0>", part) if isinstance(part, str) else part for part in template)
    return fill(escaped, lambda placeholder: _reference(placeholder, wiring, mounts))


def _reference(placeholder: Placeholder, wiring: Wiring, mounts: Mapping[str, str]) -> str:
    if not placeholder.tail:
        return f"$({contract.PREFIX}{placeholder.head.upper()})"
    if placeholder.head == contract.FILES:
        return f"{names.FILES}/{placeholder.tail}"
    if placeholder.head == contract.MOUNTS:
        return mounts[placeholder.tail]
    if placeholder.tail == "any":
        return f"{names.service(wiring.name, placeholder.head)}:{wiring.ports[placeholder.head]}"
    return f"$({contract.endpoint_variable(placeholder.head, placeholder.tail.upper())})"
