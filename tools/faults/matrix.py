"""The matrix: every fault and every victim, what is promised, and what measures it; or why there is nothing to measure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tools.faults.measures import Measure

FAULTS: Final = {
    "kill": "kill -9",
    "stop": "SIGSTOP for 10 s",
    "lease": "SIGSTOP longer than a lease: a successor takes over, then the old process wakes up",
    "slow": "slow peer",
    "cut": "connection cut mid-frame",
    "one-way": "one-way partition",
    "full-disk": "full disk",
    "read-only": "read-only disk",
    "s3-500": "S3 answers 500",
    "s3-503": "S3 answers 503",
    "s3-slow": "S3 answers slowly",
    "s3-never": "S3 never answers",
    "s3-multipart": "S3 fails halfway through a multipart upload",
    "clock": "clock jump",
    "memory": "out of memory",
    "key": "wrong key",
    "corrupt": "corrupt frame",
    "oversize": "oversized data",
    "schema": "schema change between versions",
    "stalled": "two incarnations at once, the old one stalled at every store call",
}
VICTIMS: Final = (
    "actor",
    "learner",
    "replay shard",
    "parameter server",
    "policy server",
    "evaluator",
    "supervisor",
    "attached client",
    "API server",
    "node",
)


@dataclass(frozen=True)
class Cell:
    """One fault on one victim."""

    promise: str = ""
    """What must be true, in a sentence or two."""
    measure: Measure | None = None
    """Raises when the promise is broken, and returns what was seen."""
    tests: tuple[str, ...] = ()
    """Tests of the suite that measure it, as pytest names them."""
    why_not: str = ""
    """Why there is nothing to measure."""
    quick: bool = False
    """Whether it runs in `make test` too."""

    @property
    def cluster(self) -> bool:
        """Whether it needs a Kubernetes."""
        return any(test.startswith("tests/cluster/") for test in self.tests)


Key = tuple[str, str]
"""Fault and victim."""


def cells() -> dict[Key, Cell]:
    """All of them."""
    from tools.faults import cells_cluster, cells_data, cells_local

    found = {**cells_data.cells(), **cells_local.cells(), **cells_cluster.cells()}
    return {(fault, victim): found[fault, victim] for fault in FAULTS for victim in VICTIMS}
