"""Which fields of an experiment have no effect on one machine, for a hint to the user."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from callsheet import contract
from callsheet.backends.local.addressing import has_loopback_network
from callsheet.spec.experiment import Container, Experiment

_ROLE = (
    "node_selector",
    "tolerations",
    "affinity",
    "priority_class_name",
    "image_pull_secrets",
    "service_account_name",
    "labels",
    "annotations",
    "pod_patch",
)
_CONTAINER = ("image", "image_pull_policy", "security_context", "stdin", "tty", "container_patch")
_LIFECYCLE = ("ttl_after_finished", "suspend", "clean_pods")
_VOLUMES = ("nfs", "projected", "downward_api", "ephemeral", "csi")


def unused_fields(experiment: Experiment) -> list[str]:
    """Path and, where several roles have it, the roles: ``nodeSelector (actor, learner)``."""
    fields: dict[str, list[str]] = {}
    for field, owner in _unused(experiment):
        owners = fields.setdefault(field, [])
        if owner and owner not in owners:
            owners.append(owner)
    return [f"{field} ({', '.join(owners)})" if owners else field for field, owners in fields.items()]


def _unused(experiment: Experiment) -> Iterator[tuple[str, str]]:
    spec = experiment.spec
    if not has_loopback_network():
        yield (
            "one address per replica (this system has one loopback address: replicas share it, ports are chosen)",
            "",
        )
    if urlsplit(spec.storage or "").scheme == "pvc":
        yield "storage on pvc:// (results go to runs/)", ""
    if spec.image:
        yield "image", ""
    if spec.workdir.exclude:
        yield "workdir.exclude", ""
    for name in _LIFECYCLE:
        if getattr(spec.lifecycle, name) != type(spec.lifecycle).model_fields[name].default:
            yield f"lifecycle.{_alias(spec.lifecycle, name)}", ""
    for volume in spec.volumes:
        for name in _VOLUMES:
            if getattr(volume, name):
                yield f"volumes[{volume.name}].{_alias(volume, name)}: an empty folder stands in", ""
    for role in spec.roles:
        for name in _ROLE:
            if getattr(role, name):
                yield _alias(role, name), role.name
        for container in role.group:
            yield from ((field, role.name) for field in _of_container(container))


def _of_container(container: Container) -> Iterator[str]:
    for name in _CONTAINER:
        if getattr(container, name):
            yield _alias(container, name)
    resources = container.resources
    if resources.requests:
        yield "resources.requests"
    if set(resources.limits) - {contract.GPU_RESOURCE}:
        yield "resources.limits"
    if any(expose.type != "PortForward" for expose in container.exposes):
        yield "exposes.type"


def _alias(model: object, name: str) -> str:
    fields = type(model).model_fields  # type: ignore[attr-defined]
    return str(fields[name].alias or name)
