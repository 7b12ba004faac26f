"""Which run is meant by what a person types."""

from __future__ import annotations

import pytest

from callsheet.backends.run_ids import KnownRun, choose_run
from callsheet.errors import UserError

KNOWN = [
    KnownRun("cartpole", "bx7newer", active=False),
    KnownRun("cartpole", "bx7older", active=True),
    KnownRun("pong", "fgh23456", active=False),
    KnownRun("bx7older", "kkkkkkkk", active=True),
]


@pytest.mark.parametrize(
    ("reference", "run"),
    [
        ("fgh23456", "fgh23456"),
        ("fg", "fgh23456"),
        ("pong", "fgh23456"),
        ("pong/fg", "fgh23456"),
        ("cartpole", "bx7older"),
        ("bx7older", "bx7older"),
    ],
    ids=["id", "beginning", "experiment", "both", "active before newer", "id before experiment"],
)
def test_a_run_is_found_by_its_id_or_its_experiment(reference: str, run: str) -> None:
    assert choose_run(reference, KNOWN, missing=UserError("missing")).run == run


@pytest.mark.parametrize("reference", ["nothing", "pong/bx7older", "pong/", ""])
def test_what_matches_no_run_is_missing(reference: str) -> None:
    with pytest.raises(UserError, match="missing"):
        choose_run(reference, KNOWN, missing=UserError("missing"))


def test_a_beginning_that_fits_several_runs_names_them() -> None:
    with pytest.raises(UserError, match="could be any of cartpole/bx7newer, cartpole/bx7older"):
        choose_run("bx7", KNOWN, missing=UserError("missing"))


def test_the_same_experiment_in_two_namespaces_is_ambiguous() -> None:
    known = [KnownRun("pong", "aaaa", True, "team-a"), KnownRun("pong", "bbbb", False, "team-b")]
    with pytest.raises(UserError, match="could be any of pong/aaaa, pong/bbbb"):
        choose_run("pong", known, missing=UserError("missing"))
