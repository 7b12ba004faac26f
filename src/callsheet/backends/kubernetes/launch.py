"""Starting a run in a cluster, and giving it another size: render, check whose names they are, apply."""

from __future__ import annotations

import base64
import json
import secrets
import time
from collections.abc import Collection, Mapping
from pathlib import Path

from callsheet import contract
from callsheet.backends.kubernetes import names
from callsheet.backends.kubernetes.apply import (
    Change,
    Key,
    apply_all,
    check_owner,
    current_objects,
    is_ours,
    key_of,
    owned,
    parallel,
    preview,
)
from callsheet.backends.kubernetes.client.api import Api, Object
from callsheet.backends.kubernetes.client.errors import ApiError
from callsheet.backends.kubernetes.observe.observed import Observed, is_over
from callsheet.backends.kubernetes.observe.reasons import uid
from callsheet.backends.kubernetes.observe.snapshot import find_config_map, observe
from callsheet.backends.kubernetes.observe.status import assess
from callsheet.backends.kubernetes.render.objects import render
from callsheet.backends.kubernetes.render.workdir import collect
from callsheet.backends.kubernetes.run import KubernetesRun
from callsheet.backends.run_ids import new_run_id
from callsheet.backends.scaling import check_sizes
from callsheet.errors import CallsheetError
from callsheet.spec.dump import to_yaml
from callsheet.spec.experiment import Experiment

KEY_FILE = "run.key"


def start(api: Api, experiment: Experiment, base: Path, source: str, *, detach: bool) -> KubernetesRun:
    """Start a run, or change the one that is there. What cannot be started leaves nothing behind."""
    prepared = prepare(api, experiment, base)
    there = prepared.live[key_of(prepared.config_map)]
    try:
        done = apply_all(api, prepared.config_map, prepared.others, prepared.live)
    except CallsheetError:
        if there is None:
            api.delete("ConfigMap", prepared.config_map["metadata"]["name"])
        raise
    if prepared.observed:
        replaced = {change.name for change in done if change.action == "replace"}
        keep_counts(api, prepared.observed, prepared.config_map, replaced)
    run = KubernetesRun(api, experiment.name, prepared.run, attached=not detach)
    if there is not None and there["data"][contract.RUN] == prepared.run:
        run.notes = _news(experiment.name, prepared.run, done)
    if prepared.withheld:
        run.notes.append(_withheld(prepared.withheld))
    if not detach:
        run.local_copy.start(source or to_yaml(experiment))
        run.local_copy.clear_logs()
    return run


def _withheld(paths: list[str]) -> str:
    shown = ", ".join(paths[:5]) + (f" and {len(paths) - 5} more" if len(paths) > 5 else "")
    return (
        f"Left out of the workdir, because the name says that it is a secret: {shown}. "
        'Use a Secret of the cluster instead, or say `workdir: {exclude: ["!name"]}` if it is none.'
    )


def _news(experiment: str, run: str, done: list[Change]) -> list[str]:
    """What became of a run that was there already."""
    words = {
        "replace": "replaced, which restarts its pods",
        "change": "changed",
        "create": "created",
        "delete": "deleted",
    }
    lines = [f"{c.kind}/{c.name} was {words[c.action]}." for c in done if c.action in words]
    return [f"{experiment} runs already, as {run}{'.' if lines else ': the file changes nothing.'}", *lines]


def changes(api: Api, experiment: Experiment, base: Path) -> list[Change]:
    """What `start` would do."""
    prepared = prepare(api, experiment, base)
    return preview(api, prepared.config_map, prepared.others, prepared.live)


class Prepared:
    """The objects of a run beside what the cluster holds under their names."""

    def __init__(
        self,
        run: str,
        config_map: Object,
        others: list[Object],
        live: dict[Key, Object | None],
        withheld: list[str],
        observed: Observed | None,
    ) -> None:
        self.run = run
        self.observed = observed
        """The same run as it is; None when a new one is started."""
        self.withheld = withheld
        """Files that did not come along, because they look like secrets."""
        self.config_map = config_map
        self.others = others
        self.live = live


def prepare(api: Api, experiment: Experiment, base: Path) -> Prepared:
    """Render for the run that is alive, else for a new one; refuse when a name is somebody else's."""
    workdir = experiment.spec.workdir
    withheld: list[str] = []
    folder = collect((base / workdir.path).resolve(), workdir.exclude, withheld)
    run, started = new_run_id(), f"{time.time():.3f}"
    # Every mistake in the file is reported before the cluster is asked.
    config_map, *others = render(experiment, run, folder)
    key = _key(experiment.name, run)
    live = current_objects(
        api, [config_map, *others, key]
    )  # of no run in particular: names hold for every run
    check_owner(live, experiment.name, api.namespace)
    observed: Observed | None = None
    if (there := live[key_of(config_map)]) is not None:
        latest = observe(api, experiment.name, events=False, config_map=there)
        if not assess(latest, time.time()).status.done:
            observed = latest
            run, started = observed.run, f"{observed.created:.3f}"
            config_map, *others = render(experiment, run, folder)
            key = _key(experiment.name, run)
    config_map["metadata"]["annotations"] = {names.STARTED: started}
    for made in (config_map, *others):
        # The client's own namespace was chosen with this one in mind.
        made["metadata"].pop("namespace", None)
    count_change(config_map, there)
    if observed is None or live[key_of(key)] is None:
        others.insert(0, key)
    else:
        live.pop(key_of(key))
    return Prepared(run, config_map, others, live, withheld, observed)


def _key(experiment: str, run: str) -> Object:
    """The Secret with a new key for a run; never rendered."""
    key = base64.b64encode(secrets.token_bytes(32)).decode()
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": names.keys(experiment), "labels": names.labels(experiment, run)},
        "data": {KEY_FILE: key},
    }


def make_key(api: Api, experiment: str) -> bool:
    """Make the key for manifests that are applied with kubectl; False when the run in the cluster has one already."""
    config_map = find_config_map(api, experiment)
    made = _key(experiment, config_map["data"][contract.RUN] if config_map else "")
    if config_map:
        made = owned(made, config_map)
        last = observe(api, experiment, events=False, config_map=config_map)
        there = api.get(*key_of(made))
        if there and is_ours(there, experiment) and assess(last, time.time()).status.done:
            api.apply(made)
            return True
    try:
        api.create(made)
    except ApiError as error:
        if error.code != 409:
            raise
        return False
    return True


def count_change(config_map: Object, before: Object | None) -> None:
    """Let the address file's generation go up when anything else in it changes during a run."""
    if before is None or before["data"][contract.RUN] != config_map["data"][contract.RUN]:
        return
    old, new = (json.loads(found["data"][names.ADDRESSES_FILE]) for found in (before, config_map))
    new["generation"] = old.get("generation", 0)
    if new != old:
        new["generation"] += 1
    config_map["data"][names.ADDRESSES_FILE] = json.dumps(new)


def resize(api: Api, observed: Observed, replicas: Mapping[str, int]) -> None:
    """Write the new sizes into the run's ConfigMap, then into the Jobs and StatefulSets."""
    experiment = Experiment.model_validate(observed.experiment)
    check_sizes(experiment, replicas)
    sizes = {role.name: observed.size(role.name) for role in experiment.spec.roles} | dict(replicas)
    config_map = render(experiment, observed.run, {}, replicas=sizes)[0]
    config_map["metadata"].pop("namespace", None)
    config_map["metadata"]["annotations"] = {names.STARTED: f"{observed.created:.3f}"}
    count_change(config_map, observed.config_map)
    api.apply(config_map)
    keep_counts(api, observed, config_map)
    for role in experiment.spec.roles:
        if role.name in replicas:
            size, owner = replicas[role.name], names.Owner.of(role)
            fields = ("completions", "parallelism") if owner is names.Owner.JOB else ("replicas",)
            change = {"spec": dict.fromkeys(fields, size)}
            api.patch(owner.kind, names.workload(experiment.name, role.name), change)
    _refresh(api, observed.pods)


def keep_counts(api: Api, observed: Observed, config_map: Object, replaced: Collection[str] = ()) -> None:
    """Write down what would be forgotten: failures of replicas that leave or get a new Job, and suspended time."""
    now, after = time.time(), Observed(config_map, {}, [])
    seen = assess(observed, now)
    leaving = [
        replica
        for replica in seen.status.replicas
        if replica.index >= after.size(replica.role)
        or names.workload(seen.status.experiment, replica.role) in replaced
    ]
    pods = observed.by_replica()
    forgotten = {uid(pod) for r in leaving for pod in pods.get((r.role, r.index), []) if is_over(pod)}
    forgotten |= {uid(pod) for pod in observed.pods} & set(observed.record.forgotten)
    record = (seen.record or observed.record).without(leaving, forgotten).at(now, suspended=after.suspended)
    if record != observed.record:
        annotations = {names.RECORD: record.to_text()}
        api.patch("ConfigMap", config_map["metadata"]["name"], {"metadata": {"annotations": annotations}})


def _refresh(api: Api, pods: list[Object]) -> None:
    """Have the kubelets look at the pods now: a mounted ConfigMap is otherwise up to a minute and a half behind."""
    body = {"metadata": {"annotations": {names.RESIZED: f"{time.time():.3f}"}}}

    def touch(pod: Object) -> None:
        try:
            api.patch("Pod", pod["metadata"]["name"], body)
        except ApiError as error:
            if error.code not in (403, 404):  # without the right it takes longer, and a pod may have gone
                raise

    parallel(touch, [pod for pod in pods if pod["status"].get("phase") == "Running"])
