"""What Prometheus scrapes is what its own parsers read."""

from __future__ import annotations

import math

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from callsheet.metrics import Registry, wellknown
from callsheet.metrics.prometheus import text
from callsheet.metrics.targets import Identity

WHO = Identity("cartpole", "wrj7fnb7", "actor", 3, "actor", 1)
PARSERS = [
    pytest.param(False, parse_text, id="text"),
    pytest.param(True, parse_openmetrics, id="openmetrics"),
]


def samples(registry: Registry, parse, *, openmetrics: bool) -> dict[tuple[str, frozenset], float]:
    families = parse(text(registry.snapshot(), WHO, openmetrics=openmetrics))
    return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}


@pytest.fixture
def registry() -> Registry:
    registry = Registry()
    registry.counter("steps", "Environment steps.").add(12_345)
    registry.gauge("queue", "Waiting.").set(2.5)
    refusals = registry.counters("refusals", 'Said "no" \\ once\nor twice.', ("reason",))
    refusals.of(reason='a "quoted" \\ word\nof two lines').add(1)
    refusals.of(reason="key").add(2)
    wait = registry.histogram("wait", "Waiting.", unit="seconds", buckets=(0.5, 1, 2))
    for value in (0.1, 0.7, 5.0):
        wait.observe(value)
    return registry


@pytest.mark.parametrize(("openmetrics", "parse"), PARSERS)
def test_every_value_is_read_back(registry: Registry, openmetrics: bool, parse) -> None:
    found = samples(registry, parse, openmetrics=openmetrics)

    def value(name: str, **labels: str) -> float:
        return found["callsheet_" + name, frozenset(labels.items())]

    assert value("steps_total") == 12_345
    assert value("queue") == 2.5
    assert value("refusals_total", reason='a "quoted" \\ word\nof two lines') == 1
    assert value("refusals_total", reason="key") == 2
    assert [value("wait_seconds_bucket", le=le) for le in ("0.5", "1.0", "2.0", "+Inf")] == [1, 2, 2, 3]
    assert value("wait_seconds_count") == 3
    assert value("wait_seconds_sum") == pytest.approx(5.8)
    who = {"experiment": "cartpole", "run": "wrj7fnb7", "role": "actor"}
    assert value("process_info", **who, index="3", container="actor", attempt="1") == 1


@pytest.mark.parametrize(("openmetrics", "parse"), PARSERS)
def test_help_and_types_are_read_back(registry: Registry, openmetrics: bool, parse) -> None:
    families = {f.name: f for f in parse(text(registry.snapshot(), WHO, openmetrics=openmetrics))}
    assert families["callsheet_steps"].type == "counter"
    assert families["callsheet_steps"].documentation == "Environment steps."
    assert families["callsheet_queue"].type == "gauge"
    assert families["callsheet_wait_seconds"].type == "histogram"
    if openmetrics:
        assert families["callsheet_wait_seconds"].unit == "seconds"
        assert families["callsheet_refusals"].documentation == 'Said "no" \\ once\nor twice.'


@pytest.mark.parametrize(("openmetrics", "parse"), PARSERS)
def test_infinite_and_undefined_numbers_pass(openmetrics: bool, parse) -> None:
    registry = Registry()
    for name, value in (("high", math.inf), ("low", -math.inf), ("none", math.nan)):
        registry.gauge(name, "A number.").set(value)
    found = samples(registry, parse, openmetrics=openmetrics)
    assert found["callsheet_high", frozenset()] == math.inf
    assert found["callsheet_low", frozenset()] == -math.inf
    assert math.isnan(found["callsheet_none", frozenset()])


@pytest.mark.parametrize(("openmetrics", "parse"), PARSERS)
def test_returns_may_be_negative(openmetrics: bool, parse) -> None:
    registry = Registry()
    registry.histogram("returns", "Returns.", buckets=(-10, 0, 10)).observe(-20)
    found = samples(registry, parse, openmetrics=openmetrics)
    assert found["callsheet_returns_bucket", frozenset({("le", "-10.0")})] == 1
    assert (("callsheet_returns_sum", frozenset()) in found) is not openmetrics


@pytest.mark.parametrize(("openmetrics", "parse"), PARSERS)
def test_all_well_known_metrics_can_be_exported_by_one_process(openmetrics: bool, parse) -> None:
    registry = Registry()
    for by_endpoint in wellknown.BY_ENDPOINT:
        for endpoint in ("trajectories", "replay"):
            by_endpoint(registry, endpoint)
    wellknown.Transport(registry, "replay").refusals.add()
    wellknown.TrajectoryWriter(registry, "trajectories").dropped.add(3)
    found = samples(registry, parse, openmetrics=openmetrics)
    label = frozenset({("endpoint", "trajectories")})
    assert found["callsheet_trajectories_dropped_total", label] == 3
    assert len({name for name, _ in found}) > 60
