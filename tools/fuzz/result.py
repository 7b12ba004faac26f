"""What a run of a target found."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Result:
    """Of one target."""

    target: str
    cases: int = 0
    seconds: float = 0.0
    growth: int = 0
    """Bytes of memory more than at the beginning, at most."""
    gap: float | None = None
    """Seconds that an honest client waited at most; None where there is none."""
    slowest: float = 0.0
    """Seconds of the slowest case, where each is timed."""
    failures: list[str] = field(default_factory=list)

    def row(self) -> str:
        """A line of the table in the documentation."""
        gap = "" if self.gap is None else f"{self.gap * 1000:,.0f} ms"
        slowest = "" if self.gap is not None else f"{self.slowest * 1000:,.0f} ms"
        return (
            f"| {self.target} | {self.cases:,} | {self.seconds:,.0f} s | {self.growth / 2**20:,.1f} MiB | {gap} | {slowest} "
            f"| {len(self.failures)} |"
        )
