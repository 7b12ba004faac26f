"""Kubernetes quantities and durations: read strictly, kept as written."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from callsheet.spec.quantity import Duration, Quantity, parse_duration, parse_quantity

QUANTITY: TypeAdapter[str] = TypeAdapter(Quantity)
DURATION: TypeAdapter[str] = TypeAdapter(Duration)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4", "4"),
        ("1.5", "1.5"),
        (".5", "0.5"),
        ("+2", "2"),
        ("500m", "0.5"),
        ("10Gi", str(10 * 2**30)),
        ("2G", "2000000000"),
        ("1k", "1000"),
        ("1Ki", "1024"),
        ("100n", "0.0000001"),
        ("1e3", "1000"),
        ("12E-1", "1.2"),
        ("1E", "1000000000000000000"),
        ("1Ei", str(2**60)),
    ],
)
def test_a_quantity_is_a_number_with_a_suffix(text: str, value: str) -> None:
    assert parse_quantity(text) == Decimal(value)


@pytest.mark.parametrize(
    "text", ["", "1 Gi", "1GiB", "10GB", "ten", "-1", "1.2.3", "1K", "Gi", "1Gi\n", "1e", "1e999"]
)
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        parse_quantity(text)
    with pytest.raises(ValidationError):
        QUANTITY.validate_python(text)


def test_a_quantity_stays_the_text_that_was_written() -> None:
    assert QUANTITY.validate_python("1.50") == "1.50"
    assert QUANTITY.validate_python(4) == "4"


@pytest.mark.parametrize("value", [1.5, True, None, []])
def test_a_quantity_is_never_converted_silently(value: object) -> None:
    with pytest.raises(ValidationError):
        QUANTITY.validate_python(value)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90.0),
        ("15m", 900.0),
        ("1h30m", 5400.0),
        ("7d", 604800.0),
        ("500ms", 0.5),
        ("1m1s1ms", 61.001),
        ("0s", 0.0),
    ],
)
def test_a_duration_is_whole_numbers_with_units(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "90", "1.5h", "30m1h", "-1s", "1 h", "1s\n", "1w", "s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)
    with pytest.raises(ValidationError):
        DURATION.validate_python(text)


def test_a_bare_number_of_seconds_asks_for_the_unit() -> None:
    with pytest.raises(ValidationError) as caught:
        DURATION.validate_python(30)
    assert caught.value.errors()[0]["ctx"]["fix"] == "give the unit: 30s"


@given(st.integers(0, 999), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_the_units_of_a_duration_add_up(days: int, hours: int, minutes: int, seconds: int) -> None:
    text = f"{days}d{hours}h{minutes}m{seconds}s"
    assert parse_duration(text) == days * 86400 + hours * 3600 + minutes * 60 + seconds
