"""Reads the cluster: everything of one experiment, or of all."""

from __future__ import annotations

import json
from collections.abc import Sequence

from callsheet.backends.kubernetes import names
from callsheet.backends.kubernetes.apply import parallel
from callsheet.backends.kubernetes.client.api import EVERYWHERE, Api, Object
from callsheet.backends.kubernetes.client.errors import ApiError
from callsheet.backends.kubernetes.observe import exposed
from callsheet.backends.kubernetes.observe.observed import Observed
from callsheet.errors import UserError

_KINDS = ("Job", "StatefulSet", "Pod")


def find_config_map(api: Api, experiment: str) -> Object | None:
    """The experiment's ConfigMap; None if there is none of ours."""
    config_map = api.get("ConfigMap", names.config_map(experiment))
    if config_map is None or names.EXPERIMENT_FILE not in (config_map.get("data") or {}):
        return None
    return config_map


def observe_all(api: Api, *, everywhere: bool = False) -> list[Observed]:
    """Every experiment in the namespace, or in all of them, with four requests if nothing is exposed."""
    labels = {names.MANAGED_BY: names.MANAGER}
    namespace = EVERYWHERE if everywhere else ""

    def listed(kinds: Sequence[str]) -> list[list[Object]]:
        return parallel(lambda kind: api.objects(kind, labels, namespace=namespace), kinds)

    maps, *others = listed(("ConfigMap", *_KINDS))
    experiments = []
    for config_map in maps:
        if names.EXPERIMENT_FILE in (config_map.get("data") or {}):
            mine = [[item for item in items if _place(item) == _place(config_map)] for items in others]
            experiments.append(_observed(config_map, *mine))
    kinds = sorted({kind for observed in experiments for kind in exposed.kinds(observed.experiment)})
    for kind, items in zip(kinds, listed(kinds), strict=True):
        for observed in experiments:
            _add_exposure(
                observed, kind, [item for item in items if _place(item) == _place(observed.config_map)]
            )
    for observed in experiments:
        _add_nodes(api, observed)
    return experiments


def _place(item: Object) -> tuple[str, str]:
    metadata = item["metadata"]
    return metadata.get("namespace", ""), (metadata.get("labels") or {}).get(names.EXPERIMENT, "")


def observe(api: Api, experiment: str, *, events: bool = True, config_map: Object | None = None) -> Observed:
    """Everything of one experiment now; warnings are read only if something waits."""
    config_map = config_map or find_config_map(api, experiment)
    if config_map is None:
        raise UserError(
            f"the experiment {experiment!r} is no longer in the namespace {api.namespace!r}",
            fix="list them with `callsheet ps --on kubernetes -A`",
        )
    labels = names.selector(experiment)
    kinds = sorted(exposed.kinds(json.loads(config_map["data"][names.EXPERIMENT_FILE])))
    jobs, sets, pods, *others = parallel(lambda kind: api.objects(kind, labels), (*_KINDS, *kinds))
    observed = _observed(config_map, jobs, sets, pods)
    for kind, items in zip(kinds, others, strict=True):
        _add_exposure(observed, kind, items)
    _add_nodes(api, observed)
    if events and (len(observed.pods) < _wanted(observed.workloads) or any(map(_waits, observed.pods))):
        observed.events = _warnings(api)
    return observed


def _observed(config_map: Object, jobs: list[Object], sets: list[Object], pods: list[Object]) -> Observed:
    workloads = {item["metadata"]["labels"][names.ROLE]: item for item in (*jobs, *sets)}
    observed = Observed(config_map, workloads, pods)
    observed.pods = [pod for pod in pods if pod["metadata"]["labels"].get(names.RUN) == observed.run]
    return observed


def _add_exposure(observed: Observed, kind: str, items: list[Object]) -> None:
    observed.exposure.objects |= {(kind, item["metadata"]["name"]): item for item in items}


def _add_nodes(api: Api, observed: Observed) -> None:
    for role in exposed.on_nodes(observed.experiment):
        observed.exposure.nodes[role] = _node_of(api, observed, role)


def _node_of(api: Api, observed: Observed, role: str) -> str:
    """The address of a node where the role runs; every other node would answer too."""
    pod = next((pod for pod in observed.newest(role).values() if pod["spec"].get("nodeName")), None)
    if pod is None:
        return ""
    try:
        node = api.cluster(f"api/v1/nodes/{pod['spec']['nodeName']}", "read a node")
    except ApiError:  # without that right: what the pod knows of its node, good inside the cluster's network
        return str(pod["status"].get("hostIP", ""))
    return exposed.node_address(node)


def _warnings(api: Api) -> list[Object]:
    try:
        return api.objects("Event", fields="type=Warning")
    except ApiError as error:
        if error.code == 403:  # events only make reasons richer
            return []
        raise


def _wanted(workloads: dict[str, Object]) -> int:
    return sum(
        int(item["spec"].get("completions") or item["spec"].get("replicas") or 0)
        for item in workloads.values()
    )


def _waits(pod: Object) -> bool:
    return bool(pod["status"].get("phase") == "Pending")
