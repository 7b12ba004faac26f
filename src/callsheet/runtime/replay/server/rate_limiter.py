"""Keeps samples and inserts in proportion: the side that is ahead waits, and is told why."""

from __future__ import annotations

import math
from dataclasses import dataclass

from callsheet.errors import UserError
from callsheet.runtime import limits


@dataclass
class RateLimiter:
    """Delays sampling until a minimum size, and keeps the samples per insert near a ratio.

    Inserts are admitted one by one. A sample is admitted as a whole once its first item is, so the tolerance may be
    exceeded by less than one request; in return the two sides can never block each other, whatever their request
    sizes.
    """

    min_size: int = 1
    """Items required before sampling starts."""
    ratio: float | None = None
    """Samples per insert; None for no limit."""
    tolerance: float = 0.0
    """How many samples the two sides may deviate from the ratio."""
    inserted: int = 0
    sampled: int = 0

    def __post_init__(self) -> None:
        if self.min_size < 1:
            raise UserError(f"sampling cannot begin at {self.min_size} items", fix="min_size is at least 1")
        if self.ratio is not None:
            limits.positive("samples_per_insert", self.ratio, "choose a number above 0, or None for no limit")
            limits.positive(
                "tolerance", self.tolerance, "choose a number above 0: without it both sides stop"
            )

    @property
    def surplus(self) -> float:
        """Samples that are due for the inserts so far; negative if too many were taken."""
        return 0.0 if self.ratio is None else self.ratio * (self.inserted - self.min_size) - self.sampled

    def allowed_inserts(self, size: int, count: int) -> int:
        """How many of `count` items may be inserted into a table of this size."""
        if self.ratio is None:
            return count
        allowed = math.ceil((self.tolerance - self.surplus) / self.ratio)
        return max(0, min(count, max(allowed, self.min_size - size)))

    def can_sample(self, size: int) -> bool:
        """Whether more may be sampled."""
        return size >= self.min_size and (self.ratio is None or self.surplus > -self.tolerance)

    def why_no_insert(self) -> str:
        """What an insert waits for."""
        return (
            f"inserts wait for samples: {self.sampled:,} samples of {self.inserted:,} inserts, "
            f"and {self.ratio:g} for each insert are wanted"
        )

    def why_no_sample(self, size: int) -> str:
        """What a sample waits for."""
        if size < self.min_size:
            return f"samples wait for items: there are {size:,} of {self.min_size:,}"
        return (
            f"samples wait for inserts: {self.sampled:,} samples of {self.inserted:,} inserts, "
            f"and {self.ratio:g} for each insert are wanted"
        )
