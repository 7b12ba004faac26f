"""Makes the cluster hold the rendered objects: server-side apply, replacing only what cannot be changed.

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
_AT_ONCE = 8
_GOING = 120.0
"""Seconds that a replaced object may take to go beyond its pods' grace period."""


@dataclass(frozen=True, slots=True)
class Change:
    """What was done, or would be done, with one object."""

    action: Action
    kind: str
    name: str
    before: Object | None = None
    after: Object | None = None


def key_of(made: Object) -> Key:
    """Kind and name."""
    return made["kind"], made["metadata"]["name"]


def look(api: Api, objects: Sequence[Object]) -> dict[Key, Object | None]:
    """What the cluster holds under the names of these objects."""
    keys = [key_of(made) for made in objects]
    return dict(zip(keys, parallel(lambda key: api.get(*key), keys), strict=True))


def check_owner(live: Mapping[Key, Object | None], experiment: str, namespace: str) -> None:
    """Refuse to go on when a name is taken by something that is not this experiment's."""
    taken = [
        f"{kind} {name}"
        for (kind, name), found in live.items()
        if found is not None and not is_ours(found, experiment)
    ]
    if taken:
        raise UserError(
            f"the namespace {namespace!r} already has the {', '.join(taken)}, which is not of the experiment {experiment!r}",
            fix="give the experiment another name, or use another namespace with -n",
        )


def is_ours(found: Object, experiment: str) -> bool:
    """Whether an object belongs to the experiment."""
    labels = found["metadata"].get("labels") or {}
    return labels.get(names.MANAGED_BY) == names.MANAGER and labels.get(names.EXPERIMENT) == experiment


def owned(made: Object, config_map: Object) -> Object:
    """The object with the run's ConfigMap as its owner."""
    owner = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": config_map["metadata"]["name"],
        "uid": config_map["metadata"]["uid"],
    }
    made = copy.deepcopy(made)
    made["metadata"]["ownerReferences"] = [owner]
    return made


def apply_all(
    api: Api, config_map: Object, others: Sequence[Object], live: Mapping[Key, Object | None]
) -> list[Change]:
    """Make the cluster hold the run's ConfigMap and the others, and nothing else of the experiment."""
    made = api.apply(config_map)
    before = live[key_of(config_map)]
    changes = [Change(_action(before, made), *key_of(config_map))]
    ready = [owned(other, made) for other in others]
    # What pods need comes first: a pod that starts before its ConfigMap waits half a minute for the next try.
    needed = [other for other in ready if other["kind"] not in WORKLOADS]
    workloads = [other for other in ready if other["kind"] in WORKLOADS]
    for batch in (needed, workloads):
        changes += parallel(lambda other: _put(api, other, live[key_of(other)]), batch)
    return changes + prune(
        api, config_map["metadata"]["name"], {key_of(other) for other in (config_map, *others)}
    )


def _put(api: Api, made: Object, before: Object | None) -> Change:
    kind, name = key_of(made)
    try:
        if before is not None and _is_of_another_run(made, before):
            return _replace(api, made)
        try:
            return Change(_action(before, api.apply(made)), kind, name)
        except ApiError as error:
            if before is None or not is_immutable(error):
                raise
            return _replace(api, made)
    except ApiError as error:
        role = (made["metadata"].get("labels") or {}).get(names.ROLE, "")
        raise UserError(
            f"the cluster refused the {kind} {name}: {with_file_paths(error.text, role)}"
            if error.code == 422
            else error.message,
            fix=error.fix,
        ) from None


def _is_of_another_run(made: Object, before: Object) -> bool:
    """A Job of a run that has ended cannot become one of the next."""
    run = (before["metadata"].get("labels") or {}).get(names.RUN)
    return bool(made["kind"] == "Job" and run != made["metadata"]["labels"][names.RUN])


def _replace(api: Api, made: Object) -> Change:
    kind, name = key_of(made)
    api.delete(kind, name, foreground=True)
    grace = made["spec"].get("template", {}).get("spec", {}).get("terminationGracePeriodSeconds", 0)
    wait_until(
        lambda: api.get(kind, name) is None,
        grace + _GOING,
        f"the old {kind} {name} is still there: its pods have not ended",
    )
    api.apply(made)
    return Change("replace", kind, name)


def _action(before: Object | None, after: Object) -> Action:
    if before is None:
        return "create"
    return "keep" if _same(before, after) else "change"


def leftovers(api: Api, experiment: str, kept: set[Key]) -> list[Key]:
    """Objects of the experiment that the file no longer asks for."""
    labels = names.selector(experiment) | {names.MANAGED_BY: names.MANAGER}

    def find(kind: str) -> list[Key]:
        try:
            return [(kind, found["metadata"]["name"]) for found in api.objects(kind, labels)]
        except ApiError as error:
            if error.code == 403:  # who may not list them has not made any
                return []
            raise

    return [key for keys in parallel(find, _PRUNED) for key in keys if key not in kept]


def prune(api: Api, experiment: str, kept: set[Key]) -> list[Change]:
    """Delete what the file no longer asks for."""
    found = leftovers(api, experiment, kept)
    for kind, name in found:
        api.delete(kind, name)
    return [Change("delete", kind, name) for kind, name in found]


def preview(
    api: Api, config_map: Object, others: Sequence[Object], live: Mapping[Key, Object | None]
) -> list[Change]:
    """What `apply_all` would do, asked of the API server with nothing changed."""
    owner = live[key_of(config_map)] or {"metadata": {**config_map["metadata"], "uid": "not-yet-made"}}
    ready = [config_map, *(owned(other, owner) for other in others)]
    changes = parallel(lambda made: _dry(api, made, live[key_of(made)]), ready)
    kept = {key_of(made) for made in ready}
    for kind, name in leftovers(api, config_map["metadata"]["name"], kept):
        changes.append(Change("delete", kind, name, before=api.get(kind, name)))
    return changes


def _dry(api: Api, made: Object, before: Object | None) -> Change:
    kind, name = key_of(made)
    if before is not None and _is_of_another_run(made, before):
        return Change("replace", kind, name, before, made)
    try:
        after = api.apply(made, dry_run=True)
    except ApiError as error:
        if before is None or not is_immutable(error):
            raise
        return Change("replace", kind, name, before, made)
    if before is None:
        return Change("create", kind, name, None, after)
    return Change("keep" if _same(before, after) else "change", kind, name, before, after)


def _same(before: Object, after: Object) -> bool:
    def content(found: Object) -> Object:
        unimportant = ("managedFields", "resourceVersion", "generation")
        metadata = {key: value for key, value in found["metadata"].items() if key not in unimportant}
        return {key: value for key, value in found.items() if key not in ("metadata", "status")} | metadata

    return content(before) == content(after)


def parallel(function: Callable[[In], Out], items: Iterable[In]) -> list[Out]:
    """The function of each item, several at a time, in their order; the first error is raised."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(function, items))


def wait_until(done: Callable[[], bool], seconds: float, otherwise: str) -> None:
    """Ask again and again until the answer is yes."""
    limit = time.monotonic() + seconds
    pause = 0.05
    while not done():
        if time.monotonic() > limit:
            raise RetryError(otherwise, fix="wait and try again")
        time.sleep(pause)
        pause = min(pause * 1.5, 1.0)
