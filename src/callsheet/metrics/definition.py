"""A metric's name and meaning, checked when it is made: a bad name would surface only in a dashboard.

Its full name is ``callsheet_<subject>_<what>_<unit>``; code, JSON lines and TensorBoard omit the prefix.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, Literal, NamedTuple

from callsheet.errors import UserError

Kind = Literal["counter", "gauge", "histogram"]

PREFIX: Final = "callsheet_"
LABEL_SETS: Final = 64
"""Default limit of label combinations per metric."""
MAX_LABEL_LENGTH: Final = 100

_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_RESERVED_SUFFIXES = ("_total", "_count", "_sum", "_bucket", "_created", "_info")


class Definition(NamedTuple):
    """A metric without its values."""

    name: str
    """With its unit, without the prefix: ``trajectories_wait_seconds``."""
    kind: Kind
    help: str
    unit: str = ""
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets, ascending; one more bucket has the rest."""
    shown: str = ""
    """Its name in `callsheet status` and the live view; empty: not shown there."""
    adds_up: bool = False
    """Whether replicas' values are shown as their sum, like sizes, rather than their mean."""

    @property
    def full_name(self) -> str:
        """The name in Prometheus, which adds ``_total`` to counters."""
        return PREFIX + self.name


def define(
    name: str,
    kind: Kind,
    help: str,
    *,
    unit: str = "",
    labels: Sequence[str] = (),
    bounds: Sequence[float] = (),
    shown: bool | str = False,
    adds_up: bool = False,
) -> Definition:
    """Check a definition. The unit becomes the name's suffix; `shown` may be the name to show."""
    if unit and not name.endswith(f"_{unit}"):
        name = f"{name}_{unit}"
    name = name.removeprefix(PREFIX)
    for word in (name, *labels, *([unit] if unit else [])):
        if not _NAME.fullmatch(word):
            raise UserError(
                f"{word!r} is not a valid metric or label name",
                fix="use lowercase letters and digits, separated by single underscores: queue_depth",
            )
    suffix = next((suffix for suffix in _RESERVED_SUFFIXES if name.endswith(suffix)), None)
    if suffix:
        raise UserError(
            f"the metric {name!r} ends with {suffix}, which Prometheus adds itself",
            fix=f"call it {name.removesuffix(suffix)}",
        )
    if not help.strip():
        raise UserError(f"the metric {name!r} has no help text", fix="describe it in one sentence")
    if len(set(labels)) != len(labels) or "le" in labels:
        raise UserError(
            f"the labels of the metric {name!r} are {', '.join(labels)}",
            fix="use each label once, and not 'le', which histograms use",
        )
    word = (
        shown if isinstance(shown, str) else name.removesuffix(f"_{unit}").replace("_", " ") if shown else ""
    )
    return Definition(
        name, kind, help.strip(), unit, tuple(labels), _checked_bounds(name, kind, bounds), word, adds_up
    )


def _checked_bounds(name: str, kind: Kind, bounds: Sequence[float]) -> tuple[float, ...]:
    if kind != "histogram":
        return ()
    checked = tuple(float(bound) for bound in bounds)
    finite = all(-1e308 <= bound <= 1e308 for bound in checked)
    if not checked or not finite or any(a >= b for a, b in pairwise(checked)):
        raise UserError(
            f"the buckets of the histogram {name!r} are not ascending numbers",
            fix="omit them, or use exponential(first, factor, count)",
        )
    return checked


def exponential(first: float, factor: float, count: int) -> tuple[float, ...]:
    """Bucket bounds that grow by a factor: ``exponential(1, 2, 4)`` is 1, 2, 4, 8."""
    if first <= 0 or factor <= 1 or count < 1:
        raise UserError(
            f"exponential({first}, {factor}, {count}) makes no buckets",
            fix="start above 0, grow by more than 1, and make at least one",
        )
    return tuple(first * factor**power for power in range(count))


SECONDS: Final = exponential(50e-6, 2, 22)
"""50 microseconds to 105 seconds."""
COUNTS: Final = (0.0, *exponential(1, 2, 17))
"""0, 1, 2, 4, ... 65,536: lags, batch sizes."""
BYTES: Final = exponential(256, 4, 12)
"""256 bytes to 1 GiB."""
