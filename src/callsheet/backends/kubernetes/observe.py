"""Looks at the cluster: everything of one experiment, or the books of all."""

from __future__ import annotations

from callsheet.backends.kubernetes import names
from callsheet.backends.kubernetes.api import EVERYWHERE, Api, Object
from callsheet.backends.kubernetes.apply import parallel
from callsheet.backends.kubernetes.refusals import Refused
from callsheet.backends.kubernetes.status import Observed
from callsheet.errors import UserError

_KINDS = ("Job", "StatefulSet", "Pod")


def find_book(api: Api, experiment: str) -> Object | None:
    """The experiment's book; None when there is none of ours."""
    book = api.get("ConfigMap", names.book(experiment))
    if book is None or names.EXPERIMENT_FILE not in (book.get("data") or {}):
        return None
    return book


def observe_all(api: Api, *, everywhere: bool = False) -> list[Observed]:
    """Every experiment in the namespace, or in all of them, with four questions in all."""
    labels = {names.MANAGED_BY: names.MANAGER}
    namespace = EVERYWHERE if everywhere else ""
    kinds = ("ConfigMap", *_KINDS)
    maps, *others = parallel(lambda kind: api.objects(kind, labels, namespace=namespace), kinds)
    found = []
    for book in maps:
        if names.EXPERIMENT_FILE in (book.get("data") or {}):
            mine = [[item for item in items if _place(item) == _place(book)] for items in others]
            found.append(_observed(book, *mine))
    return found


def _place(found: Object) -> tuple[str, str]:
    metadata = found["metadata"]
    return metadata.get("namespace", ""), (metadata.get("labels") or {}).get(names.EXPERIMENT, "")


def observe(api: Api, experiment: str, *, events: bool = True, book: Object | None = None) -> Observed:
    """Everything of one experiment now; warnings are asked for only when something waits."""
    book = book or find_book(api, experiment)
    if book is None:
        raise UserError(
            f"the experiment {experiment!r} is no longer in the namespace {api.namespace!r}",
            fix="see which there are: callsheet ps --on kubernetes -A",
        )
    labels = names.selector(experiment)
    jobs, sets, pods = parallel(lambda kind: api.objects(kind, labels), _KINDS)
    observed = _observed(book, jobs, sets, pods)
    if events and (len(observed.pods) < _wanted(observed.workloads) or any(map(_waits, observed.pods))):
        observed.events = _warnings(api)
    return observed


def _observed(book: Object, jobs: list[Object], sets: list[Object], pods: list[Object]) -> Observed:
    workloads = {found["metadata"]["labels"][names.ROLE]: found for found in (*jobs, *sets)}
    observed = Observed(book, workloads, pods)
    observed.pods = [pod for pod in pods if pod["metadata"]["labels"].get(names.RUN) == observed.run]
    return observed


def _warnings(api: Api) -> list[Object]:
    try:
        return api.objects("Event", fields="type=Warning")
    except Refused as error:
        if error.code == 403:  # events only make reasons richer
            return []
        raise


def _wanted(workloads: dict[str, Object]) -> int:
    return sum(
        int(found["spec"].get("completions") or found["spec"].get("replicas") or 0)
        for found in workloads.values()
    )


def _waits(pod: Object) -> bool:
    return bool(pod["status"].get("phase") == "Pending")
