"""Metrics of parts that come and go: what was counted stays, and nothing else does."""

from __future__ import annotations

import gc
import weakref

import numpy as np

from callsheet.runtime import Context, ParameterReader, ParameterServer
from callsheet.runtime.data_plane_metrics import DataPlaneMetrics
from callsheet.runtime.link.link import Link


def value(metrics: DataPlaneMetrics, name: str) -> float:
    found = [one.value for one in metrics.registry.snapshot() if one.definition.name == name]
    assert len(found) == 1, found
    assert isinstance(found[0], (int, float))
    return found[0]


def test_counters_keep_what_ended_parts_counted_and_gauges_show_those_that_live() -> None:
    metrics = DataPlaneMetrics()
    first, second = {"snapshots": 3.0, "version": 7.0}, {"snapshots": 2.0, "version": 9.0}
    one, two = first.copy, second.copy
    metrics.track("ParameterReader", "e", one)
    metrics.track("ParameterReader", "e", two)
    assert value(metrics, "parameters_read") == 5
    assert value(metrics, "parameters_version") == 9, "the newest that was read"
    metrics.untrack(one)
    metrics.untrack(one)
    first["snapshots"] = 100  # nobody looks there any more
    assert value(metrics, "parameters_read") == 5
    assert value(metrics, "parameters_version") == 9
    second["snapshots"] = 4
    assert value(metrics, "parameters_read") == 7
    metrics.untrack(two)
    assert value(metrics, "parameters_read") == 7
    assert value(metrics, "parameters_version") == 9, "the last line of a process tells how it ended"


def test_a_closed_link_is_not_kept_for_its_metrics() -> None:
    with Context(addresses={"e": "127.0.0.1:9"}, plaintext=True) as context:
        link = Link(context, "e", "test")
        link.counts.sent = 5
        seen = weakref.ref(link)
        link.close()
        del link
        gc.collect()
        assert seen() is None
        assert value(context.data_plane_metrics, "transport_frames_sent") == 5


def test_what_closed_readers_and_servers_counted_is_still_told() -> None:
    with Context(addresses={"e": "127.0.0.1:0"}, plaintext=True) as context:
        for version in range(3):
            with (
                ParameterServer(context, "e") as server,
                ParameterReader(context, "e", connect_to=server.address) as reader,
            ):
                server.publish(version, {"w": np.zeros(2)})
                assert reader.wait(timeout=30).version == version
        assert value(context.data_plane_metrics, "parameters_published") == 3
        assert value(context.data_plane_metrics, "parameters_read") == 3
