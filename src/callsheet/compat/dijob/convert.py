"""From the text of a file with DIJobs to experiments: all mistakes at once, and a warning for whatever is lost.

The experiment is built as a tree whose pieces still know their place in the DIJob, and then checked like any other; so
a mistake that only shows in the experiment is told at the line of the DIJob where it was made.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from callsheet import contract
from callsheet.compat.dijob.job import Job, grow
from callsheet.compat.dijob.pod import Setting, role
from callsheet.compat.dijob.shapes import read
from callsheet.compat.dijob.volumes import Volumes
from callsheet.errors import InvalidExperiment, Problem
from callsheet.plan.load import examine
from callsheet.spec import yaml_reader as yamldoc
from callsheet.spec import yaml_tree as tree
from callsheet.spec.experiment import Experiment
from callsheet.spec.yaml_reader import Document, Unreadable, decode
from callsheet.spec.yaml_tree import MappingNode, ScalarNode

KIND = "DIJob"


@dataclass(frozen=True, slots=True)
class Converted:
    """What one DIJob became."""

    experiment: Experiment
    warnings: list[Problem]
    """Each thing that has no counterpart, by its path in the DIJob."""


def convert(data: bytes, file: str, *, workdir: str | None = None) -> list[Converted]:
    """The experiments of a file with DIJobs. Raises `InvalidExperiment` with all mistakes.

    `workdir`: the folder of the programs, where they are not in the image.
    """
    try:
        documents, problems = yamldoc.read(decode(data))
    except Unreadable as error:
        documents, problems = [], [error.problem]
    problems = [replace(problem, file=file) for problem in problems]
    jobs = [document for document in documents if _is_job(document)]
    others = [_other(document, file) for document in documents if document not in jobs]
    if not jobs and not problems:
        problems = others or [Problem("", f"{file} is empty", f"give a file of kind: {KIND}", file, 1, 1)]
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
    shown = kind.text if isinstance(kind, ScalarNode) else "no kind"
    fix = ""
    if shown == "AggregatorConfig":
        fix = "add a role for the aggregator yourself; KUBERNETES_AGGREGATOR_URL is not set"
    where = kind or root
    return Problem(
        "kind", f"a document of {shown} is left out: it is no {KIND}", fix, file, where.line, where.column
    )


def _convert(document: Document, file: str, workdir: str | None) -> tuple[Experiment | None, Job]:
    root = document.root
    assert isinstance(root, MappingNode)
    job = Job(root, file, [replace(flaw, file=file) for flaw in document.flaws])
    shape = read(job)
    if shape is None:
        return None, job
    volumes = Volumes(job, ("spec", "volumes"))
    names = [task.name for task in shape.tasks]
    setting = Setting(job, names, volumes, carries_code=workdir is not None)
    roles = [
        grow(role(setting, task, shape.variables(task)), job.near(task.template)) for task in shape.tasks
    ]
    spec: dict[str, Any] = {"workdir": {"path": workdir}} if workdir not in (None, ".") else {}
    if volumes.made:
        spec["volumes"] = list(volumes.made.values())
    spec |= {"roles": roles, "lifecycle": shape.lifecycle}
    head = {"apiVersion": contract.API_VERSION, "kind": contract.KIND, "metadata": _metadata(job)}
    made = grow(head | {"spec": spec}, root)
    built = examine(Document(made, document.text, []), file)
    places = _places(root)
    told = {(problem.line, problem.column) for problem in job.problems}
    for problem in built.problems:
        place = (problem.line, problem.column)
        if place not in told:
            job.problems.append(replace(problem, path=places.get(place, problem.path)))
    return built.experiment, job


def _metadata(job: Job) -> dict[str, Any]:
    wanted = ("name", "namespace", "labels", "annotations")
    return {key: job.near(("metadata", key)) for key in wanted if job.node(("metadata", key)) is not None}


def _places(root: MappingNode) -> dict[tuple[int, int], str]:
    """The path in the DIJob of what stands at a line and column."""
    found: dict[tuple[int, int], str] = {}
    for loc, node in tree.walk(root):
        found.setdefault((node.line, node.column), tree.path(root, loc))
        for key, entry in node.entries.items() if isinstance(node, MappingNode) else ():
            found.setdefault((entry.line, entry.column), tree.path(root, (*loc, key)))
    return found
