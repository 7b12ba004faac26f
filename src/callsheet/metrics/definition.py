"""What a metric is called and means, checked when it is made: a bad name would only surface in somebody's dashboard.

A metric's full name is ``callsheet_<subject>_<what>_<unit>``; in code, JSON lines and TensorBoard the prefix is left out.
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
"""How many combinations of label values one metric may have unless it says otherwise."""
LONGEST_LABEL: Final = 100
"""Characters of a label's value."""

_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_ENDINGS = ("_total", "_count", "_sum", "_bucket", "_created", "_info")


class Definition(NamedTuple):
    """One metric, without its values."""

    name: str
    """With its unit, without the prefix: ``trajectories_wait_seconds``."""
    kind: Kind
    help: str
    unit: str = ""
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets, ascending; one more bucket takes the rest."""
    shown: str = ""
    """Under which word `callsheet status` and the live view show it; empty when they do not."""
    adds_up: bool = False
    """Whether the replicas' values are shown as their sum, as sizes are, rather than as their mean."""

    @property
    def full_name(self) -> str:
        """As Prometheus knows it; a counter's samples end with ``_total`` in addition."""
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
    """A checked definition; the unit becomes the end of the name. `shown` may be the word to show it under."""
    if unit and not name.endswith(f"_{unit}"):
        name = f"{name}_{unit}"
    name = name.removeprefix(PREFIX)
    for word in (name, *labels, *([unit] if unit else [])):
        if not _NAME.fullmatch(word):
            raise UserError(
                f"{word!r} cannot be part of a metric's name",
                fix="write lower-case letters and digits with single _ between them: queue_depth",
            )
    ending = next((ending for ending in _ENDINGS if name.endswith(ending)), None)
    if ending:
        raise UserError(
            f"the metric {name!r} ends with {ending}, which Prometheus adds by itself",
            fix=f"call it {name.removesuffix(ending)}",
        )
    if not help.strip():
        raise UserError(f"the metric {name!r} has no help text", fix="say in one sentence what it counts")
    if len(set(labels)) != len(labels) or "le" in labels:
        raise UserError(
            f"the labels of the metric {name!r} are {', '.join(labels)}",
            fix="write each label once, and none called le: histograms use that",
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
            f"the buckets of the histogram {name!r} are not a row of ascending numbers",
            fix="leave them out, or write them with exponential(first, factor, count)",
        )
    return checked


def exponential(first: float, factor: float, count: int) -> tuple[float, ...]:
    """Bounds that grow by a factor: ``exponential(1, 2, 4)`` is 1, 2, 4, 8."""
    if first <= 0 or factor <= 1 or count < 1:
        raise UserError(
            f"exponential({first}, {factor}, {count}) makes no buckets",
            fix="start above 0, grow by more than 1, and ask for at least one",
        )
    return tuple(first * factor**power for power in range(count))


SECONDS: Final = exponential(50e-6, 2, 22)
"""50 microseconds to 105 seconds."""
COUNTS: Final = (0.0, *exponential(1, 2, 17))
"""0, 1, 2, 4, ... 65,536: lags, batch sizes."""
BYTES: Final = exponential(256, 4, 12)
"""256 bytes to 1 GiB."""
