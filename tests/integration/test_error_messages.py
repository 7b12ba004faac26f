"""An honest peer that wants more than there can be is told why, once and for good; nobody else notices."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from replay_servers import KINDS, client, context, serving, until

from callsheet.errors import UserError
from callsheet.runtime import Refused
from callsheet.runtime.context import Context
from callsheet.runtime.link import blocks
from callsheet.runtime.policy import PolicyClient, PolicyFailed, PolicyServer
from callsheet.runtime.replay import Table
from callsheet.runtime.schema import Field, Schema
from callsheet.runtime.stop import Stopping
from callsheet.runtime.trajectories import TrajectoryWriter

ITEM = {"x": np.zeros(4096, "f4")}
HUGE = np.broadcast_to(np.float32(0), (1 << 28) + 1)
"""More than a gigabyte, in four bytes."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_that_is_too_large_is_refused_also_when_it_was_asked_for_before_the_first_item(
    kind: str,
) -> None:
    with (
        serving(kind, Table(items=10)) as shard,
        client(kind, shard.address, role="greedy", batch=65_536) as greedy,
        client(kind, shard.address, role="modest", batch=4) as modest,
        ThreadPoolExecutor() as threads,
    ):
        wish = threads.submit(greedy.sample, 30)
        until(lambda: shard.server.counts()["held_samples"] > 0)
        modest.insert(ITEM, timeout=10)
        for _ in range(3):  # the first was asked for before the item came, the others after it
            with pytest.raises(
                Refused, match="65,536 items of 16,384 bytes is larger than 536,870,912"
            ) as told:
                wish.result(30)
            assert "batch=32768 or less" in told.value.fix
            assert modest.sample(10).arrays["x"].shape == (4, 4096)
            wish = threads.submit(greedy.sample, 30)
        assert shard.is_alive()
        with pytest.raises(Refused):
            wish.result(30)
        assert modest.counts()["asked_again"] == 0
        assert shard.server.listener.counts.hellos < 15


@pytest.mark.parametrize("kind", KINDS)
def test_more_items_than_a_queue_holds_are_refused_when_that_is_known(kind: str) -> None:
    with (
        serving(kind, Table(kind="fifo", items=20)) as shard,
        client(kind, shard.address, role="greedy", batch=21) as greedy,
        client(kind, shard.address, role="modest", batch=2) as modest,
        ThreadPoolExecutor() as threads,
    ):
        wish = threads.submit(greedy.sample, 30)
        until(lambda: shard.server.counts()["held_samples"] > 0)
        modest.insert(ITEM, timeout=10)
        with pytest.raises(Refused, match="21 items from a queue of 20") as told:
            wish.result(30)
        assert told.value.fix
        modest.insert(ITEM, timeout=10)
        assert len(modest.sample(10).keys) == 2


def policy(ctx: Context, most: int) -> PolicyServer:
    schema = Schema.of({"x": np.zeros(4, "f4")})
    return PolicyServer(ctx, "replay", lambda seen: seen, max_batch=most, schema_in=schema, schema_out=schema)


@pytest.mark.parametrize("kind", KINDS)
def test_a_policy_that_came_back_with_smaller_batches_says_so(kind: str) -> None:
    rows = {"x": np.ones((8, 4), "f4")}
    with context(kind, role="policy") as first:
        server = policy(first, 8)
        with context(kind, server.address, role="simulator") as ctx, PolicyClient(ctx, "replay") as asks:
            thread = threading.Thread(target=server.step, args=(30,))
            thread.start()
            assert (asks.act(rows, timeout=30).arrays["x"] == 1).all()
            thread.join()
            ticket = asks.submit(rows, timeout=10)
            server.close()
            first.close()
            with context(kind, server.address, role="policy") as second, policy(second, 4) as smaller:

                def serve() -> None:
                    with pytest.raises(Stopping):
                        smaller.serve()

                thread = threading.Thread(target=serve)
                thread.start()
                with pytest.raises(PolicyFailed, match="8 observations, and a batch takes 4"):
                    asks.result(ticket, timeout=30)
                with pytest.raises(UserError, match="a request of 8 observations"):
                    asks.act(rows, timeout=30)
                assert len(asks.act({"x": rows["x"][:4]}, timeout=30).arrays["x"]) == 4
                second.stop.set()
                thread.join()


def test_batches_of_a_policy_that_no_message_takes_are_refused_at_once() -> None:
    large = Schema((Field("x", np.dtype("f4"), (1 << 20,)),))
    with (
        context("memory") as ctx,
        pytest.raises(UserError, match="max_batch is 65, whose answers have 272,629,760 bytes") as told,
    ):
        PolicyServer(
            ctx,
            "replay",
            lambda seen: seen,
            max_batch=65,
            schema_in=Schema.of({"x": np.zeros(4)}),
            schema_out=large,
        )
    assert "max_batch=64 or less" in told.value.fix


@pytest.mark.parametrize("kind", ["memory", "network"])
def test_an_item_that_no_message_takes_is_refused_before_it_is_sent(kind: str) -> None:
    with context(kind) as ctx, TrajectoryWriter(ctx, "replay") as writer:
        with pytest.raises(
            UserError, match="has 1,073,741,888 bytes, but a message holds at most 1,073,741,824"
        ) as told:
            writer.write({"x": HUGE}, timeout=5)
        assert told.value.fix
    with serving(kind, Table(items=10)) as shard, client(kind, shard.address) as replay:
        with pytest.raises(UserError, match="a message holds at most 1,073,741,824"):
            replay.insert({"x": HUGE}, timeout=5)
        assert shard.is_alive()


def test_no_more_is_on_its_way_than_the_other_side_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "MAX_MAPPED_BYTES", 16 << 20)
    ours = blocks.BlockPool(8)
    taken = [ours.take(4 << 20) for _ in range(5)]
    assert [block is not None for block in taken] == [True, True, True, False, False]
    assert taken[0] is not None
    ours.release_block(taken[0])
    assert ours.take(4 << 20) is taken[0]
    ours.close()
