"""Checks single fields: variables, volumes, mounts, probes, resources, files and storage."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from pydantic import BaseModel

from callsheet import contract
from callsheet.errors import did_you_mean
from callsheet.plan.check.context import CheckContext, Mistake, PlacedContainer, listed, repeated
from callsheet.plan.check.names import is_object_name
from callsheet.spec.kubernetes import EnvFromSource, EnvSource, EnvVar, Probe, ResourceFieldRef, Volume
from callsheet.spec.quantity import is_counted, parse_quantity
from callsheet.spec.yaml_tree import Loc

STORAGE_SCHEMES = ("s3", "gs", "az", "file", "pvc")

_VARIABLE = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
_FILE = re.compile(r"[-._A-Za-z0-9]+")
_PROBES = ("exec", "http_get", "tcp_socket")


def check_fields(context: CheckContext) -> Iterator[Mistake]:
    """Everything in the spec that is neither a name nor wiring."""
    spec = context.experiment.spec
    yield from _storage(spec.storage)
    for name in spec.files:
        if not _FILE.fullmatch(name) or name in (".", ".."):
            yield Mistake(
                ("spec", "files", name),
                f"{name!r} is not a valid file name here",
                "use only letters, digits, '.', '_' and '-', and no folders",
                at_key=True,
            )
    for index, volume in enumerate(spec.volumes):
        yield from _volume(context, ("spec", "volumes", index), volume)
    for index, variable in enumerate(spec.env):
        yield from _variable(context, ("spec", "env", index), variable, None)
    for placed in context.containers:
        yield from _container(context, placed)


def _container(context: CheckContext, placed: PlacedContainer) -> Iterator[Mistake]:
    container = placed.container
    for index, variable in enumerate(container.env):
        yield from _variable(context, (*placed.loc, "env", index), variable, placed)
    for index, source in enumerate(container.env_from):
        yield from _env_from(context, (*placed.loc, "envFrom", index), source)
    yield from _mounts(context, placed)
    yield from _resources(placed)
    if container.readiness_probe:
        yield from _probe(context, placed, container.readiness_probe)


def exactly_one(
    context: CheckContext, loc: Loc, part: BaseModel, fields: tuple[str, ...]
) -> Iterator[Mistake]:
    """Exactly one of several keys must be set; what was dropped for its shape counts as set."""
    aliases = {name: type(part).model_fields[name].alias or name for name in fields}
    given = [alias for name, alias in aliases.items() if getattr(part, name) is not None]
    if len(given) > 1:
        yield Mistake(loc, f"{' and '.join(given)} cannot be combined", "keep one of them")
    elif not given and not context.document.dropped_in(loc):
        yield Mistake(loc, f"one of {', '.join(aliases.values())} is missing", "add one of them")


def _storage(storage: str | None) -> Iterator[Mistake]:
    if storage is None:
        return
    try:
        url = urlsplit(storage)
    except ValueError:
        url = urlsplit("")
    scheme, rest = url.scheme, storage.partition("://")[2]
    forms = (
        "s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, file:///folder or pvc://claim/path"
    )
    if scheme not in STORAGE_SCHEMES or not rest:
        fix = f"write {forms}"
        if storage.startswith(("/", ".", "~")):
            fix = "for a folder on this machine, write file:/// and its absolute path"
        yield Mistake(("spec", "storage"), f"{storage!r} is not a storage URL", fix)
    elif scheme == "file" and not rest.startswith("/"):
        yield Mistake(("spec", "storage"), f"{storage!r} has no absolute path", f"write file:///{rest}")
    elif scheme != "file" and not url.netloc:
        yield Mistake(("spec", "storage"), f"{storage!r} names no bucket or claim", f"write {forms}")


def _variable(
    context: CheckContext, loc: Loc, variable: EnvVar, placed: PlacedContainer | None
) -> Iterator[Mistake]:
    name = variable.name
    if not _VARIABLE.fullmatch(name):
        fix = "use letters, digits, '_', '.' and '-', not starting with a digit"
        yield Mistake((*loc, "name"), f"{name!r} is not a valid variable name", fix)
    elif name.startswith(contract.PREFIX):
        fix = f"choose a name that does not start with {contract.PREFIX}"
        yield Mistake((*loc, "name"), f"the variable name {name!r} is reserved", fix)
    if variable.value is not None and variable.value_from:
        yield Mistake(loc, f"{name!r} has both value and valueFrom", "keep one of them")
    elif variable.value is None and not variable.value_from and not context.document.dropped_in(loc):
        yield Mistake(loc, f"{name!r} has no value", 'add value: "..." or valueFrom')
    if variable.value_from:
        yield from _source(context, (*loc, "valueFrom"), variable.value_from, placed)


def _source(
    context: CheckContext, loc: Loc, source: EnvSource, placed: PlacedContainer | None
) -> Iterator[Mistake]:
    yield from exactly_one(context, loc, source, tuple(EnvSource.model_fields))
    for key, ref in (("secretKeyRef", source.secret_key_ref), ("configMapKeyRef", source.config_map_key_ref)):
        if ref:
            yield from _object((*loc, key, "name"), ref.name)
            if not _FILE.fullmatch(ref.key) or ref.key in (".", ".."):
                fix = "use only letters, digits, '.', '_' and '-'"
                yield Mistake((*loc, key, "key"), f"{ref.key!r} is not a valid key", fix)
    if source.resource_field_ref:
        yield from _resource_field((*loc, "resourceFieldRef"), source.resource_field_ref, placed)


def _resource_field(loc: Loc, ref: ResourceFieldRef, placed: PlacedContainer | None) -> Iterator[Mistake]:
    kind, _, resource = ref.resource.partition(".")
    if kind not in ("limits", "requests") or not resource:
        fix = "write limits.cpu, limits.memory, requests.cpu or requests.memory"
        yield Mistake((*loc, "resource"), f"{ref.resource!r} is not a container resource", fix)
    if parse_quantity(ref.divisor) == 0:
        yield Mistake((*loc, "divisor"), "the divisor cannot be 0", "write 1, 1Mi or the like")
    names = [container.name for container in placed.role.group] if placed else []
    if ref.container_name and placed and ref.container_name not in names:
        fix = did_you_mean(ref.container_name, names, f"use one of {listed(names)}")
        yield Mistake(
            (*loc, "containerName"), f"there is no container {ref.container_name!r} in this role", fix
        )


def _object(loc: Loc, name: str) -> Iterator[Mistake]:
    if not is_object_name(name):
        fix = "use only lowercase letters, digits, '-' and '.'"
        yield Mistake(loc, f"{name!r} is not a valid name of a Kubernetes object", fix)


def _env_from(context: CheckContext, loc: Loc, source: EnvFromSource) -> Iterator[Mistake]:
    yield from exactly_one(context, loc, source, ("config_map_ref", "secret_ref"))
    for key, ref in (("configMapRef", source.config_map_ref), ("secretRef", source.secret_ref)):
        if ref:
            yield from _object((*loc, key, "name"), ref.name)


def _volume(context: CheckContext, loc: Loc, volume: Volume) -> Iterator[Mistake]:
    kinds = tuple(name for name in Volume.model_fields if name != "name")
    yield from exactly_one(context, loc, volume, kinds)
    if volume.host_path and not volume.host_path.path.startswith("/"):
        path = volume.host_path.path
        yield Mistake((*loc, "hostPath", "path"), f"{path!r} is not an absolute path", "start it with /")
    if volume.secret:
        yield from _object((*loc, "secret", "secretName"), volume.secret.secret_name)
    if volume.config_map:
        yield from _object((*loc, "configMap", "name"), volume.config_map.name)
    if volume.persistent_volume_claim:
        name = volume.persistent_volume_claim.claim_name
        yield from _object((*loc, "persistentVolumeClaim", "claimName"), name)


def _mounts(context: CheckContext, placed: PlacedContainer) -> Iterator[Mistake]:
    volumes = {volume.name for volume in context.experiment.spec.volumes} | context.document.names.volumes
    mounts = placed.container.volume_mounts
    for index, mount in enumerate(mounts):
        loc = (*placed.loc, "volumeMounts", index)
        if mount.name not in volumes:
            fix = did_you_mean(mount.name, volumes, "add it under spec.volumes")
            yield Mistake((*loc, "name"), f"there is no volume {mount.name!r}", fix)
        if not mount.mount_path.startswith("/") or ":" in mount.mount_path:
            fix = "use a path that starts with / and contains no colon"
            yield Mistake((*loc, "mountPath"), f"{mount.mount_path!r} is not an absolute path", fix)
        if mount.sub_path.startswith("/") or ".." in mount.sub_path.split("/"):
            fix = "use a relative path without '..'"
            yield Mistake((*loc, "subPath"), f"{mount.sub_path!r} points outside the volume", fix)
    for index, first, path in repeated([mount.mount_path for mount in mounts]):
        message = f"the volume {mounts[first].name!r} is already mounted at {path!r}"
        yield Mistake((*placed.loc, "volumeMounts", index, "mountPath"), message, "choose another path")


def _resources(placed: PlacedContainer) -> Iterator[Mistake]:
    resources = placed.container.resources
    for key, amounts in (("requests", resources.requests), ("limits", resources.limits)):
        for name, amount in amounts.items():
            if is_counted(name) and parse_quantity(amount) % 1:
                what = "GPUs" if name == contract.GPU_RESOURCE else name
                loc = (*placed.loc, "resources", key, name)
                yield Mistake(loc, f"{amount} is not a whole number of {what}", "write 1, 2, ...")
    for name, asked in resources.requests.items():
        most = resources.limits.get(name)
        if most is not None and parse_quantity(asked) > parse_quantity(most):
            loc = (*placed.loc, "resources", "requests", name)
            yield Mistake(loc, f"{asked} exceeds the limit of {most}", "lower it, or raise the limit")


def _probe(context: CheckContext, placed: PlacedContainer, probe: Probe) -> Iterator[Mistake]:
    loc = (*placed.loc, "readinessProbe")
    yield from exactly_one(context, loc, probe, _PROBES)
    for key, action in (("httpGet", probe.http_get), ("tcpSocket", probe.tcp_socket)):
        if action is None:
            continue
        where = (*loc, key, "port")
        if isinstance(action.port, int):
            if not 1 <= action.port <= 65535:
                yield Mistake(where, f"{action.port} is not a port", "write a number from 1 to 65535")
        elif action.port not in placed.bound and not any(
            context.document.dropped_in((*placed.loc, other)) for other in ("binds", "exposes")
        ):
            fix = did_you_mean(
                action.port, placed.bound, f"use a number, or one of its endpoints: {listed(placed.bound)}"
            )
            yield Mistake(where, f"{placed.label} binds no endpoint {action.port!r}", fix)
