"""Checks an experiment whose shape is right: names, wiring, braces and parts. Pure; finds every mistake at once."""

from __future__ import annotations

from itertools import chain

from callsheet.errors import Problem
from callsheet.plan.check_base import Known, Mistake, subject
from callsheet.plan.check_braces import check_braces
from callsheet.plan.check_names import check_names
from callsheet.plan.check_parts import check_parts
from callsheet.plan.check_wiring import check_wiring
from callsheet.spec import tree
from callsheet.spec.dump import to_data
from callsheet.spec.experiment import Experiment

__all__ = ["Known", "Mistake", "check", "check_experiment"]

_NOTHING_MORE = Known()


def check(experiment: Experiment, known: Known = _NOTHING_MORE) -> list[Mistake]:
    """Every mistake in an experiment. `known`: what the file says beyond it."""
    it = subject(experiment, known)
    return list(chain(check_names(it), check_wiring(it), check_braces(it), check_parts(it)))


def check_experiment(experiment: Experiment) -> list[Problem]:
    """Every mistake in an experiment that was made in Python, with its path."""
    mistakes = check(experiment)
    if not mistakes:
        return []
    root = tree.from_data(to_data(experiment))
    return [Problem(tree.path(root, m.loc), m.message, m.fix) for m in mistakes]
