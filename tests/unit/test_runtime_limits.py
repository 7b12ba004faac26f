"""Numbers that cannot be are refused where they are passed, with the value and what to write instead."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from callsheet.errors import UserError
from callsheet.runtime.context import Context
from callsheet.runtime.parameters import ParameterReader, ParameterServer
from callsheet.runtime.policy import PolicyClient, PolicyServer
from callsheet.runtime.replay import ReplayClient, ReplayServer, Table
from callsheet.runtime.schema import Schema
from callsheet.runtime.stop import Stopping
from callsheet.runtime.trajectories import TrajectoryReader, TrajectoryWriter

ITEM = {"x": np.zeros(4, "f4")}
SCHEMA = Schema.of(ITEM)
NOT_WHOLE = [-1, 1.5, math.nan, "8", None]
WINDOWS = [0, 33, 65, *NOT_WHOLE]
COUNTS = [0, *NOT_WHOLE]
TIMES = [-0.1, -math.inf, math.nan, "5"]


@pytest.fixture
def ctx() -> Iterator[Context]:
    with Context(addresses={"e": "127.0.0.1:0"}, plaintext=True) as context:
        yield context


def policy(ctx: Context, **options: Any) -> PolicyServer:
    return PolicyServer(
        ctx, "e", lambda seen: seen, **{"max_batch": 4, "schema_in": SCHEMA, "schema_out": SCHEMA, **options}
    )


def wrong(call: Callable[[], object], name: str, value: object) -> None:
    with pytest.raises(UserError) as caught:
        call()
    assert name in caught.value.message
    assert repr(value) in caught.value.message
    assert caught.value.fix


Make = Callable[..., Any]
NUMBERS: list[tuple[Make, str, list[Any]]] = [
    (lambda ctx, **more: TrajectoryWriter(ctx, "e", **more), "window", WINDOWS),
    (lambda ctx, **more: TrajectoryWriter(ctx, "e", **more), "ahead", COUNTS[:-1]),
    (lambda ctx, **more: TrajectoryWriter(ctx, "e", durable=True, **more), "keep", COUNTS),
    (lambda ctx, **more: TrajectoryReader(ctx, "e", **more), "window", WINDOWS),
    (lambda ctx, **more: TrajectoryReader(ctx, "e", **more), "buffers", [1, *COUNTS]),
    (lambda ctx, **more: TrajectoryReader(ctx, "e", **more), "max_policy_lag", NOT_WHOLE[:-1]),
    (lambda ctx, **more: ReplayClient(ctx, "e", **more), "window", WINDOWS),
    (lambda ctx, **more: ReplayClient(ctx, "e", **more), "batch", [65_537, *COUNTS[:-1]]),
    (lambda ctx, **more: ReplayClient(ctx, "e", batch=4, **more), "ahead", [33, *NOT_WHOLE]),
    (lambda ctx, **more: ReplayClient(ctx, "e", durable=True, **more), "keep", COUNTS),
    (lambda ctx, **more: ReplayServer(ctx, "e", Table(), **more), "window", WINDOWS),
    (lambda ctx, **more: ReplayServer(ctx, "e", Table(), **more), "keep", COUNTS),
    (
        lambda ctx, **more: ReplayServer(ctx, "e", Table(), **more),
        "snapshot_every",
        [0, -1, math.nan, math.inf, "9"],
    ),
    (lambda ctx, **more: Table(**more), "items", COUNTS),
    (lambda ctx, **more: Table(**more), "bytes", COUNTS[:-1]),
    (lambda ctx, **more: Table(**more), "min_size", COUNTS),
    (lambda ctx, **more: Table(**more), "seed", NOT_WHOLE[:-1]),
    (lambda ctx, **more: Table(**more), "samples_per_insert", [0, -1.0, math.nan, math.inf]),
    (lambda ctx, **more: Table(samples_per_insert=1, **more), "tolerance", [0, -1.0, math.nan, math.inf]),
    (lambda ctx, **more: Table(**more), "alpha", [-0.1, 10.5, math.nan]),
    (policy, "max_batch", COUNTS),
    (policy, "max_wait", TIMES),
    (policy, "max_failures", COUNTS),
    (lambda ctx, **more: Context(plaintext=True, **more), "index", NOT_WHOLE),
    (lambda ctx, **more: Context(plaintext=True, **more), "replicas", COUNTS),
    (lambda ctx, **more: Context(plaintext=True, **more), "attempt", NOT_WHOLE),
]


@pytest.mark.parametrize(
    ("make", "name", "value"),
    [
        pytest.param(make, name, value, id=f"{number}-{name}-{value}")
        for number, (make, name, values) in enumerate(NUMBERS)
        for value in values
    ],
)
def test_a_number_that_cannot_be_is_refused_with_what_can_be(
    ctx: Context, make: Make, name: str, value: object
) -> None:
    wrong(lambda: make(ctx, **{name: value}), name, value)


MADE: dict[str, Callable[[Context], Any]] = {
    "writer": lambda ctx: TrajectoryWriter(ctx, "e", SCHEMA),
    "reader": lambda ctx: TrajectoryReader(ctx, "e"),
    "parameters": lambda ctx: ParameterReader(ctx, "e"),
    "replay": lambda ctx: ReplayClient(ctx, "e", batch=1),
    "shard": lambda ctx: ReplayServer(ctx, "e", Table()),
    "asks": lambda ctx: PolicyClient(ctx, "e"),
    "answers": policy,
}
TIMED: dict[str, Callable[[Any, Any], object]] = {
    "writer.write": lambda writer, t: writer.write(ITEM, timeout=t),
    "writer.rollout": lambda writer, t: writer.rollout(timeout=t),
    "writer.connect": lambda writer, t: writer.connect(t),
    "writer.flush": lambda writer, t: writer.flush(t),
    "writer.close": lambda writer, t: writer.close(t),
    "reader.read": lambda reader, t: reader.read(1, timeout=t),
    "parameters.wait": lambda reader, t: reader.wait(timeout=t),
    "replay.insert": lambda replay, t: replay.insert(ITEM, timeout=t),
    "replay.insert_many": lambda replay, t: replay.insert_many({"x": np.zeros((2, 4))}, timeout=t),
    "replay.flush": lambda replay, t: replay.flush(t),
    "replay.close": lambda replay, t: replay.close(t),
    "replay.sample": lambda replay, t: replay.sample(t),
    "replay.update": lambda replay, t: replay.update(np.zeros(1, "u8"), [1.0], t),
    "shard.serve": lambda shard, t: shard.serve(t),
    "shard.step": lambda shard, t: shard.step(t),
    "asks.act": lambda client, t: client.act({"x": np.zeros((1, 4), "f4")}, timeout=t),
    "asks.submit": lambda client, t: client.submit({"x": np.zeros((1, 4), "f4")}, timeout=t),
    "answers.step": lambda server, t: server.step(t),
}


@pytest.mark.parametrize("value", TIMES)
@pytest.mark.parametrize("name", TIMED)
def test_a_time_that_cannot_be_is_refused_before_anything_waits(
    ctx: Context, name: str, value: object
) -> None:
    with MADE[name.partition(".")[0]](ctx) as made:
        wrong(lambda: TIMED[name](made, value), "timeout", value)


@pytest.mark.parametrize("value", TIMES)
def test_one_cannot_sleep_for_less_than_no_time(ctx: Context, value: Any) -> None:
    wrong(lambda: ctx.sleep(value), "sleep", value)


def test_a_sleep_without_end_ends_when_the_process_should_stop(ctx: Context) -> None:
    threading.Timer(0.05, ctx.stop.set).start()
    begun = time.monotonic()
    with pytest.raises(Stopping):
        ctx.sleep(math.inf)
    assert time.monotonic() - begun < 20


@pytest.mark.parametrize("value", [-1, 1.5, 1 << 63, "1", None])
def test_a_version_that_cannot_be_is_refused(ctx: Context, value: Any) -> None:
    with TrajectoryWriter(ctx, "e", SCHEMA) as writer:
        wrong(lambda: writer.write(ITEM, version=value), "version", value)
        wrong(lambda: writer.rollout(version=value).__enter__(), "version", value)
    with ParameterServer(ctx, "e") as server:
        wrong(lambda: server.publish(value, ITEM), "version", value)
    if value not in (-1, None):
        wrong(lambda: ParameterReader(ctx, "e").poll(newer_than=value), "newer_than", value)


@pytest.mark.parametrize("value", [-1, 8, 0.5, "1"])
def test_a_lane_that_is_not_there_is_refused(ctx: Context, value: Any) -> None:
    wrong(lambda: PolicyClient(ctx, "e").submit(ITEM, lane=value), "lane", value)


@pytest.mark.parametrize("keys", [np.zeros(2, "u4"), np.zeros(2, "i8"), np.zeros((2, 1), "u8"), [1, 2]])
def test_keys_that_no_sample_had_are_refused(ctx: Context, keys: Any) -> None:
    with pytest.raises(UserError, match="keys are"):
        ReplayClient(ctx, "e", batch=1).update(keys, [1.0, 1.0])


def test_more_than_the_machine_can_keep_is_refused(ctx: Context) -> None:
    with pytest.raises(UserError, match=r"keep=1,152,921,504,606,846,976 bytes"):
        TrajectoryWriter(ctx, "e", durable=True, keep=1 << 60)


def test_numbers_of_numpy_are_numbers(ctx: Context) -> None:
    TrajectoryReader(ctx, "e", window=np.int32(4), buffers=np.uint8(2)).close()
    with ParameterServer(ctx, "e") as server:
        server.publish(np.int64(3), ITEM)  # type: ignore[arg-type]
        assert server.version == 3
    ctx.sleep(np.float32(0.0))  # type: ignore[arg-type]
