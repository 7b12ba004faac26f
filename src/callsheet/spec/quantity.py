"""Kubernetes quantities (``10Gi``, ``500m``) and durations (``1h30m``), parsed strictly.

Both stay text in the model, so that a file survives a round trip; these functions give their value. A bare
float is refused, as Kubernetes refuses it: YAML would turn ``1.10`` into ``1.1`` before anyone looks.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

QUANTITY_PATTERN = (
    r"^\+?([0-9]+|[0-9]+\.[0-9]*|\.[0-9]+)(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?$"
)
DURATION_PATTERN = r"^([0-9]{1,6}d)?([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,9}s)?([0-9]{1,9}ms)?$"

_QUANTITY = re.compile(QUANTITY_PATTERN)
_DURATION = re.compile(DURATION_PATTERN)
_SUFFIX = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    **{letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", start=1)},
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", start=1)},
}
_SECONDS = (86400.0, 3600.0, 60.0, 1.0, 0.001)
_UNITS = ("d", "h", "m", "s", "ms")


def parse_quantity(text: str) -> Decimal:
    """The number behind a Kubernetes quantity: ``parse_quantity("500m") == Decimal("0.5")``."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a quantity")
    number, suffix = match.group(1), match.group(2) or ""
    if suffix[:1] in ("e", "E") and len(suffix) > 1 and suffix != "Ei":
        return Decimal(number) * Decimal(10) ** int(suffix[1:])
    return Decimal(number) * _SUFFIX[suffix]


def is_counted(resource: str) -> bool:
    """Whether Kubernetes takes whole numbers alone of it: devices and the like, such as ``nvidia.com/gpu``."""
    return "/" in resource and "kubernetes.io/" not in resource


def instead_of_float(resource: str, text: str) -> str:
    """What to write where YAML or Python read a number with a fraction."""
    if is_counted(resource):
        return f"{resource} comes in whole numbers: write 1, 2, ..."
    return f'quote it: "{text}"'


def parse_duration(text: str) -> float:
    """Seconds in a duration: ``parse_duration("1h30m") == 5400.0``."""
    match = _DURATION.fullmatch(text)
    if match is None or not text:
        raise ValueError(f"{text!r} is not a duration")
    return sum(
        int(part[: -len(unit)]) * seconds
        for part, unit, seconds in zip(match.groups(), _UNITS, _SECONDS, strict=True)
        if part
    )


def _check_quantity(value: Any) -> str:
    fix = 'write a number with an optional suffix: 4, "1.5", 500m, 10Gi'
    if isinstance(value, float):
        fix = f'quote it: "{value}"'
    elif isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not _QUANTITY.fullmatch(value):
        raise PydanticCustomError(
            "quantity", "{shown} is not a Kubernetes quantity", {"shown": repr(value), "fix": fix}
        )
    return value


def _check_duration(value: Any) -> str:
    fix = "write whole numbers with units, largest first: 90s, 15m, 1h30m, 7d"
    if isinstance(value, int) and not isinstance(value, bool):
        fix = f"give the unit: {value}s"
    if not isinstance(value, str) or not value or not _DURATION.fullmatch(value):
        raise PydanticCustomError("duration", "{shown} is not a duration", {"shown": repr(value), "fix": fix})
    return value


Quantity = Annotated[
    str,
    BeforeValidator(_check_quantity),
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": QUANTITY_PATTERN,
            "x-kubernetes-int-or-string": True,
        }
    ),
]
"""A Kubernetes quantity, kept as the text that was written."""

Duration = Annotated[
    str, BeforeValidator(_check_duration), WithJsonSchema({"type": "string", "pattern": DURATION_PATTERN})
]
"""A length of time such as ``90s``, ``15m``, ``1h30m`` or ``7d``."""
