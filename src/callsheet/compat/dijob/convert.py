"""Converts a file with DIJobs to experiments, with all mistakes at once and a warning for everything that gets lost.

The experiment is built as a tree whose nodes keep their position in the DIJob, and checked like any other: a mistake that
shows only in the experiment is reported at its line in the DIJob.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from callsheet import contract
from callsheet.compat.dijob.job import DIJob, to_tree
from callsheet.compat.dijob.pod import PodContext, role
from callsheet.compat.dijob.shapes import read
from callsheet.compat.dijob.volumes import Volumes
from callsheet.errors import InvalidExperiment, Problem
from callsheet.plan.load import examine
from callsheet.spec import yaml_tree as tree
from callsheet.spec.experiment import Experiment
from callsheet.spec.yaml_reader import Document, Unreadable, decode
from callsheet.spec.yaml_reader import read as read_yaml
from callsheet.spec.yaml_tree import MappingNode, ScalarNode

KIND = "DIJob"


@dataclass(frozen=True, slots=True)
class Converted:
    """The experiment that a DIJob became."""

    experiment: Experiment
    warnings: list[Problem]
    """What has no counterpart, by its path in the DIJob."""


def convert(data: bytes, file: str, *, workdir: str | None = None) -> list[Converted]:
    """The experiments of a file with DIJobs. Raises `InvalidExperiment` with all mistakes.

    `workdir`: the folder of the programs, if they are not in the image.
    """
    try:
        documents, problems = read_yaml(decode(data))
    except Unreadable as error:
        documents, problems = [], [error.problem]
    problems = [replace(problem, file=file) for problem in problems]
    jobs = [document for document in documents if _is_job(document)]
    others = [_other(document, file) for document in documents if document not in jobs]
    if not jobs and not problems:
        problems = others or [Problem("", f"{file} is empty", f"pass a file with kind: {KIND}", file, 1, 1)]
    made: list[Converted] = []
    for document in jobs:
        experiment, job = _convert(document, file, workdir)
        problems += job.problems
        if experiment is not None:
            warnings = job.warnings + (others if not made else [])
            made.append(Converted(experiment, sorted(warnings, key=lambda w: (w.line, w.column))))
    if problems:
        raise InvalidExperiment(list(dict.fromkeys(problems)))
    return made


def _is_job(document: Document) -> bool:
    kind = document.root.get("kind") if isinstance(document.root, MappingNode) else None
    return isinstance(kind, ScalarNode) and kind.text == KIND


def _other(document: Document, file: str) -> Problem:
    root = document.root
    kind = root.get("kind") if isinstance(root, MappingNode) else None
    shown = f"kind {kind.text}" if isinstance(kind, ScalarNode) else "no kind"
    fix = ""
    if shown == "kind AggregatorConfig":
        fix = "add a role for the aggregator; KUBERNETES_AGGREGATOR_URL is not set"
    where = kind or root
    return Problem(
        "kind", f"a document with {shown} is ignored: it is not a {KIND}", fix, file, where.line, where.column
    )


def _convert(document: Document, file: str, workdir: str | None) -> tuple[Experiment | None, DIJob]:
    root = document.root
    assert isinstance(root, MappingNode)
    job = DIJob(root, file, [replace(flaw, file=file) for flaw in document.flaws])
    shape = read(job)
    if shape is None:
        return None, job
    volumes = Volumes(job, ("spec", "volumes"))
    names = [task.name for task in shape.tasks]
    context = PodContext(job, names, volumes, carries_code=workdir is not None)
    roles = [
        to_tree(role(context, task, shape.variables(task)), job.nearest(task.template))
        for task in shape.tasks
    ]
    spec: dict[str, Any] = {"workdir": {"path": workdir}} if workdir not in (None, ".") else {}
    if volumes.made:
        spec["volumes"] = list(volumes.made.values())
    spec |= {"roles": roles, "lifecycle": shape.lifecycle}
    head = {"apiVersion": contract.API_VERSION, "kind": contract.KIND, "metadata": _metadata(job)}
    made = to_tree(head | {"spec": spec}, root)
    parsed = examine(Document(made, document.text, []), file)
    places = _places(root)
    reported = {(problem.line, problem.column) for problem in job.problems}
    for problem in parsed.problems:
        place = (problem.line, problem.column)
        if place not in reported:
            job.problems.append(replace(problem, path=places.get(place, problem.path)))
    return parsed.experiment, job


def _metadata(job: DIJob) -> dict[str, Any]:
    return job.given(("metadata",), ("name", "namespace", "labels", "annotations"))


def _places(root: MappingNode) -> dict[tuple[int, int], str]:
    """The path in the DIJob of what is at a line and column."""
    paths: dict[tuple[int, int], str] = {}
    for loc, node in tree.walk(root):
        paths.setdefault((node.line, node.column), tree.path(root, loc))
        for key, entry in node.entries.items() if isinstance(node, MappingNode) else ():
            paths.setdefault((entry.line, entry.column), tree.path(root, (*loc, key)))
    return paths
