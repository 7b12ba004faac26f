"""What `callsheet render --on kubernetes` prints: the folder read, the objects made, written as YAML for kubectl."""

from __future__ import annotations

from pathlib import Path

from callsheet.backends.kubernetes.render.objects import Object, render, run_id
from callsheet.backends.kubernetes.render.workdir import collect
from callsheet.spec.dump import dump
from callsheet.spec.experiment import Experiment


def manifests(experiment: Experiment, base: Path, run: str = "") -> list[Object]:
    """Every object of the experiment with the user's folder in it. Without `run`, the id follows from the content."""
    workdir = experiment.spec.workdir
    folder = collect((base / workdir.path).resolve(), workdir.exclude)
    return render(experiment, run or run_id(experiment, folder), folder)


def to_text(objects: list[Object]) -> str:
    """Objects as one YAML stream."""
    return "---\n".join(dump(made) for made in objects)
