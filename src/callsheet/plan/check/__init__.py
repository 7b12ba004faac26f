"""Checks an experiment that has the right shape: names, wiring, placeholders and fields. Pure; finds every mistake at once."""

from __future__ import annotations

from itertools import chain

from callsheet.errors import Problem
from callsheet.plan.check.context import DocumentInfo, Mistake, check_context
from callsheet.plan.check.fields import check_fields
from callsheet.plan.check.names import check_names
from callsheet.plan.check.placeholders import check_placeholders
from callsheet.plan.check.wiring import check_wiring
from callsheet.spec import yaml_tree as tree
from callsheet.spec.dump import to_data
from callsheet.spec.experiment import Experiment

__all__ = ["DocumentInfo", "Mistake", "check", "check_experiment"]

_NO_DOCUMENT = DocumentInfo()


def check(experiment: Experiment, document: DocumentInfo = _NO_DOCUMENT) -> list[Mistake]:
    """Every mistake in an experiment. `document`: what its file holds besides."""
    context = check_context(experiment, document)
    return list(
        chain(check_names(context), check_wiring(context), check_placeholders(context), check_fields(context))
    )


def check_experiment(experiment: Experiment) -> list[Problem]:
    """Every mistake in an experiment that was made in Python, with its path."""
    mistakes = check(experiment)
    if not mistakes:
        return []
    root = tree.from_data(to_data(experiment))
    return [Problem(tree.path(root, m.loc), m.message, m.fix) for m in mistakes]
