"""Applies the rendered objects to the cluster with server-side apply; replaces only what cannot be changed.

The run's ConfigMap owns every other object, so that deleting it removes all. An object of the same name that belongs
to anyone else is never touched: that is checked before anything changes.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal, TypeVar

from callsheet.backends.kubernetes import names
from callsheet.backends.kubernetes.client.api import Api, Object
from callsheet.backends.kubernetes.client.errors import ApiError, is_immutable, with_file_paths
from callsheet.errors import RetryError, UserError

Action = Literal["create", "change", "replace", "delete", "keep"]
Key = tuple[str, str]
In = TypeVar("In")
Out = TypeVar("Out")

WORKLOADS = ("Job", "StatefulSet")
_PRUNED = ("Job", "StatefulSet", "Service", "NetworkPolicy", "Ingress", "ConfigMap")
_CONCURRENCY = 8
_DELETION_SECONDS = 120.0
"""How long the deletion of a replaced object may take beyond its pods' grace period."""


@dataclass(frozen=True, slots=True)
class Change:
    """What was done, or would be done, with one object."""

    action: Action
    kind: str
    name: str
    before: Object | None = None
    after: Object | None = None


def key_of(rendered: Object) -> Key:
    """Kind and name."""
    return rendered["kind"], rendered["metadata"]["name"]


def current_objects(api: Api, objects: Sequence[Object]) -> dict[Key, Object | None]:
    """The objects that the cluster has under these names."""
    keys = [key_of(rendered) for rendered in objects]
    return dict(zip(keys, parallel(lambda key: api.get(*key), keys), strict=True))


def check_owner(live: Mapping[Key, Object | None], experiment: str, namespace: str) -> None:
    """Raise an error if a name is used by something that does not belong to this experiment."""
    taken = [
        f"{kind} {name}"
        for (kind, name), existing in live.items()
        if existing is not None and not is_ours(existing, experiment)
    ]
    if taken:
        raise UserError(
            f"the namespace {namespace!r} already has {', '.join(taken)}, which does not belong to the experiment {experiment!r}",
            fix="rename the experiment, or use another namespace with -n",
        )


def is_ours(live: Object, experiment: str) -> bool:
    """Whether an object belongs to the experiment."""
    labels = live["metadata"].get("labels") or {}
    return labels.get(names.MANAGED_BY) == names.MANAGER and labels.get(names.EXPERIMENT) == experiment


def owned(rendered: Object, config_map: Object) -> Object:
    """The object with the run's ConfigMap as its owner."""
    owner = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": config_map["metadata"]["name"],
        "uid": config_map["metadata"]["uid"],
    }
    rendered = copy.deepcopy(rendered)
    rendered["metadata"]["ownerReferences"] = [owner]
    return rendered


def apply_all(
    api: Api, config_map: Object, others: Sequence[Object], live: Mapping[Key, Object | None]
) -> list[Change]:
    """Make the cluster hold the run's ConfigMap and the others, and nothing else of the experiment."""
    owner = api.apply(config_map)
    changes = [Change(_action(live[key_of(config_map)], owner), *key_of(config_map))]
    ready = [owned(other, owner) for other in others]
    # What pods need comes first: a pod that starts before its ConfigMap exists waits half a minute to retry.
    needed = [other for other in ready if other["kind"] not in WORKLOADS]
    workloads = [other for other in ready if other["kind"] in WORKLOADS]
    for batch in (needed, workloads):
        changes += parallel(lambda other: _apply(api, other, live[key_of(other)]), batch)
    return changes + prune(
        api, config_map["metadata"]["name"], {key_of(other) for other in (config_map, *others)}
    )


def _apply(api: Api, rendered: Object, before: Object | None) -> Change:
    kind, name = key_of(rendered)
    try:
        if before is not None and _is_of_another_run(rendered, before):
            return _replace(api, rendered)
        try:
            return Change(_action(before, api.apply(rendered)), kind, name)
        except ApiError as error:
            if before is None or not is_immutable(error):
                raise
            return _replace(api, rendered)
    except ApiError as error:
        role = (rendered["metadata"].get("labels") or {}).get(names.ROLE, "")
        raise UserError(
            f"the cluster refused the {kind} {name}: {with_file_paths(error.text, role)}"
            if error.code == 422
            else error.message,
            fix=error.fix,
        ) from None


def _is_of_another_run(rendered: Object, before: Object) -> bool:
    """Whether this is a Job of an earlier run: it cannot become one of the next."""
    run = (before["metadata"].get("labels") or {}).get(names.RUN)
    return bool(rendered["kind"] == "Job" and run != rendered["metadata"]["labels"][names.RUN])


def _replace(api: Api, rendered: Object) -> Change:
    kind, name = key_of(rendered)
    api.delete(kind, name, foreground=True)
    grace = rendered["spec"].get("template", {}).get("spec", {}).get("terminationGracePeriodSeconds", 0)
    wait_until(
        lambda: api.get(kind, name) is None,
        grace + _DELETION_SECONDS,
        f"the old {kind} {name} still exists: its pods have not ended",
    )
    api.apply(rendered)
    return Change("replace", kind, name)


def _action(before: Object | None, after: Object) -> Action:
    if before is None:
        return "create"
    return "keep" if _same(before, after) else "change"


def leftovers(api: Api, experiment: str, kept: set[Key]) -> list[Key]:
    """Objects of the experiment that the file no longer needs."""
    labels = names.selector(experiment) | {names.MANAGED_BY: names.MANAGER}

    def find(kind: str) -> list[Key]:
        try:
            return [(kind, live["metadata"]["name"]) for live in api.objects(kind, labels)]
        except ApiError as error:
            if error.code == 403:  # without the right to list them, nobody has created any
                return []
            raise

    return [key for keys in parallel(find, _PRUNED) for key in keys if key not in kept]


def prune(api: Api, experiment: str, kept: set[Key]) -> list[Change]:
    """Delete what the file no longer needs."""
    obsolete = leftovers(api, experiment, kept)
    for kind, name in obsolete:
        api.delete(kind, name)
    return [Change("delete", kind, name) for kind, name in obsolete]


def preview(
    api: Api, config_map: Object, others: Sequence[Object], live: Mapping[Key, Object | None]
) -> list[Change]:
    """What `apply_all` would do, according to the API server. Changes nothing."""
    owner = live[key_of(config_map)] or {"metadata": {**config_map["metadata"], "uid": "not-yet-created"}}
    ready = [config_map, *(owned(other, owner) for other in others)]
    changes = parallel(lambda rendered: _preview(api, rendered, live[key_of(rendered)]), ready)
    kept = {key_of(rendered) for rendered in ready}
    for kind, name in leftovers(api, config_map["metadata"]["name"], kept):
        changes.append(Change("delete", kind, name, before=api.get(kind, name)))
    return changes


def _preview(api: Api, rendered: Object, before: Object | None) -> Change:
    kind, name = key_of(rendered)
    if before is not None and _is_of_another_run(rendered, before):
        return Change("replace", kind, name, before, rendered)
    try:
        after = api.apply(rendered, dry_run=True)
    except ApiError as error:
        if before is None or not is_immutable(error):
            raise
        return Change("replace", kind, name, before, rendered)
    if before is None:
        return Change("create", kind, name, None, after)
    return Change("keep" if _same(before, after) else "change", kind, name, before, after)


def _same(before: Object, after: Object) -> bool:
    def content(item: Object) -> Object:
        unimportant = ("managedFields", "resourceVersion", "generation")
        metadata = {key: value for key, value in item["metadata"].items() if key not in unimportant}
        return {key: value for key, value in item.items() if key not in ("metadata", "status")} | metadata

    return content(before) == content(after)


def parallel(function: Callable[[In], Out], items: Iterable[In]) -> list[Out]:
    """Call the function for each item, several at a time; results keep their order, and the first error is raised."""
    with ThreadPoolExecutor(_CONCURRENCY) as pool:
        return list(pool.map(function, items))


def wait_until(done: Callable[[], bool], seconds: float, otherwise: str) -> None:
    """Poll until done; raise `RetryError` with this message after a time limit."""
    limit = time.monotonic() + seconds
    pause = 0.05
    while not done():
        if time.monotonic() > limit:
            raise RetryError(otherwise, fix="wait and try again")
        time.sleep(pause)
        pause = min(pause * 1.5, 1.0)
