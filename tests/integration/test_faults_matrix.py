"""Cells of the matrix of faults that are quick: the same that `python -m tools.faults run` measures."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from s3_server import S3Server

from tools.faults import page, run
from tools.faults.matrix import FAULTS, VICTIMS, cells

ROOT = Path(__file__).parent.parent.parent
QUICK = [key for key, cell in cells().items() if cell.quick]
NEEDS_ROOT = ("full-disk", "read-only", "memory")


@pytest.mark.long
@pytest.mark.parametrize("key", QUICK, ids="/".join)
def test_a_promise_is_kept(key: tuple[str, str], tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if key[0] in NEEDS_ROOT and os.geteuid() != 0:
        pytest.skip("mounts and cgroups need root")

    def s3() -> S3Server:
        found = request.getfixturevalue("shared_s3")
        assert isinstance(found, S3Server)
        return found

    print(run.measure(key, cells()[key], 1, s3, tmp_path))


def test_every_fault_and_every_victim_have_a_cell_that_is_measured_or_says_why_not() -> None:
    found = cells()
    assert set(found) == {(fault, victim) for fault in FAULTS for victim in VICTIMS}
    for key, cell in found.items():
        ways = [cell.measure is not None, bool(cell.tests), bool(cell.why_not)]
        assert sum(ways) == 1, f"{key} is measured in one way, or says why not"
        assert bool(cell.promise) != bool(cell.why_not), f"{key} promises something, or says why not"


def test_the_tests_that_cells_name_are_there() -> None:
    for key, cell in cells().items():
        for test in cell.tests:
            file, _, name = test.partition("::")
            text = (ROOT / file).read_text()
            assert f"def {name}(" in text or not name, f"{key}: there is no {test}"


def test_the_page_is_what_the_results_say() -> None:
    """`python -m tools.faults page` writes it anew."""
    assert page.PAGE.read_text() == page.page()
