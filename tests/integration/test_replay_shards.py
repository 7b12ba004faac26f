"""A replay of several shards: items in all of them, samples from all of them, and one that is away for a while."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from replay_servers import client, context, serving, until

from callsheet.runtime.context import Context
from callsheet.runtime.link.link import TimedOut
from callsheet.runtime.replay import ReplayClient, Table


def item(number: int) -> dict[str, np.ndarray]:
    return {"number": np.array(number), "row": np.full(300, number, np.float32)}


def insert_until(replay: ReplayClient, numbers: Iterator[int], enough: Callable[[], bool]) -> None:
    def some() -> bool:
        for number in itertools.islice(numbers, 50):
            replay.insert(item(number), timeout=10)
        return enough()

    until(some)


def shards_of(keys: np.ndarray) -> np.ndarray:
    return keys >> np.uint64(56)


@pytest.mark.parametrize("kind", ["memory", "network"])
def test_items_are_spread_and_samples_come_from_all(kind: str) -> None:
    with (
        serving(kind, Table()) as first,
        serving(kind, Table(), index=1) as second,
        client(kind, first.address, second.address, batch=200) as replay,
    ):
        numbers, tables = itertools.count(), (first.server.table(), second.server.table())
        insert_until(replay, numbers, lambda: min(table.size for table in tables) > 500)
        replay.flush(10)
        total = next(numbers)
        assert sum(table.size for table in tables) == total
        until(lambda: replay.sample(10).size == total)
        seen = {int(number) for _ in range(80) for number in replay.sample(10).arrays["number"]}
        assert len(seen) > 0.9 * min(total, 16_000) * (1 - np.exp(-16_000 / total))
        sample = replay.sample(10)
        assert set(shards_of(sample.keys).tolist()) == {0, 1}
        assert (sample.arrays["row"] == sample.arrays["number"][:, None]).all()
        assert sample.probabilities == pytest.approx(1 / total, rel=0.2)


@pytest.mark.parametrize("kind", ["memory", "network"])
def test_chances_are_those_of_one_large_table(kind: str) -> None:
    table = Table(kind="prioritized", alpha=1.0)
    with serving(kind, table) as first, serving(kind, table, index=1) as second:
        for shard, priority, base in ((first, 1.0, 0), (second, 5.0, 100)):
            with client(kind, shard.address, role="actor") as actor:
                actor.insert_many({"number": base + np.arange(100)}, np.full(100, priority))
        with client(kind, first.address, second.address, batch=3000, ahead=0) as replay:
            until(lambda: len(set(shards_of(replay.sample(10).keys).tolist())) == 2)
            sample = replay.sample(10)
            numbers = sample.arrays["number"]
            assert sample.probabilities[numbers < 100] == pytest.approx(1 / 600)
            assert sample.probabilities[numbers >= 100] == pytest.approx(5 / 600)
            assert (numbers >= 100).mean() == pytest.approx(5 / 6, abs=0.04)
            replay.update(sample.keys, np.where(numbers < 100, 5.0, 1.0))
            until(lambda: first.server.table().total_weight > 450)
            until(lambda: second.server.table().total_weight < 150)


@pytest.mark.parametrize("kind", ["memory", "network"])
def test_a_shard_that_is_away_is_left_out_and_comes_back(kind: str) -> None:
    with (
        serving(kind, Table()) as stays,
        serving(kind, Table(), index=1) as goes,
        client(kind, stays.address, goes.address, batch=64) as replay,
        client(kind, stays.address, goes.address, role="actor") as actor,
    ):
        numbers = itertools.count()
        insert_until(actor, numbers, lambda: min(one.server.table().size for one in (stays, goes)) > 100)
        actor.flush(10)
        until(lambda: set(shards_of(replay.sample(10).keys).tolist()) == {0, 1})
        goes.stop(killed=True)
        until(lambda: replay.counts()["shards_away"] == 1 or replay.sample(10) is None)
        for _ in range(3):
            replay.sample(10)  # was asked for before
        for _ in range(20):
            assert set(shards_of(replay.sample(10).keys).tolist()) == {0}
        replay.update(np.append(replay.sample(10).keys, np.uint64(1 << 56)), np.ones(65))
        assert replay.counts()["dropped_updates"] == 1
        for number in range(300):
            actor.insert(item(number), timeout=10)
        with serving(kind, Table(), index=1, address=goes.address) as back:
            insert_until(actor, numbers, lambda: back.server.table().size > 100)
            until(lambda: 1 in shards_of(replay.sample(10).keys))
            assert replay.counts()["shards_away"] == 0


@pytest.mark.parametrize("ahead", [7, 31])
@pytest.mark.parametrize("kind", ["memory", "network"])
def test_batches_asked_for_far_ahead_outlive_a_shard_that_dies_for_good(kind: str, ahead: int) -> None:
    held_back = Table(samples_per_insert=1.0, tolerance=300)
    with (
        serving(kind, Table(), window=ahead + 1) as stays,
        serving(kind, held_back, index=1, window=ahead + 1) as goes,
        client(kind, stays.address, goes.address, batch=64, ahead=ahead) as replay,
        client(kind, stays.address, goes.address, role="actor") as actor,
    ):
        tables = (stays.server.table(), goes.server.table())
        insert_until(actor, itertools.count(), lambda: min(table.size for table in tables) > 100)
        with contextlib.suppress(TimedOut):
            while True:
                replay.sample(2)
        goes.stop(killed=True)  # half of each batch that was asked for is there, the other half never comes
        for _ in range(50):
            sample = replay.sample(20)
            assert (sample.arrays["row"] == sample.arrays["number"][:, None]).all()
        assert set(shards_of(sample.keys).tolist()) == {0}


def test_when_all_shards_are_away_the_wait_ends_with_a_reason() -> None:
    with (
        client("memory", "127.0.0.1:1", "127.0.0.1:2", batch=4) as replay,
        pytest.raises(TimedOut, match="none of the 2 shards of replay answers"),
    ):
        replay.sample(0.5)


def test_shards_that_come_later_are_found_in_the_address_file(tmp_path: Path) -> None:
    book = tmp_path / "addresses.json"

    def write(*addresses: str) -> None:
        new = tmp_path / "new"
        new.write_text(json.dumps({"endpoints": {"replay": {"addresses": addresses}}}))
        new.rename(book)

    with serving("network", Table()) as first, serving("network", Table(), index=1) as second:
        write(first.address)
        environ = {
            "CALLSHEET_EXPERIMENT": "by-hand",
            "CALLSHEET_RUN": "by-hand",
            "CALLSHEET_ROLE": "learner",
            "CALLSHEET_INDEX": "0",
            "CALLSHEET_ENCRYPTION": "off",
            "CALLSHEET_ADDRESSES": str(book),
            "CALLSHEET_REPLAY_ADDR": first.address,
            "CALLSHEET_REPLAY_ALL": first.address,
        }
        with Context.from_env(environ) as ctx, ReplayClient(ctx, "replay", batch=32) as replay:
            numbers = itertools.count()
            replay.insert(item(next(numbers)), timeout=10)
            replay.sample(10)
            write(first.address, second.address)
            insert_until(replay, numbers, lambda: second.server.table().size > 100)
            until(lambda: 1 in shards_of(replay.sample(10).keys))
            write(second.address)
            until(lambda: set(shards_of(replay.sample(10).keys).tolist()) == {1})


def test_shards_with_different_items_are_a_clear_mistake() -> None:
    with serving("memory", Table()) as first, serving("memory", Table(), index=1) as second:
        for shard, kind in ((first, np.float32), (second, np.float64)):
            with client("memory", shard.address, role="actor") as actor:
                actor.insert_many({"x": np.zeros(10, kind)})
        with client("memory", first.address, second.address, batch=64) as replay:
            with pytest.raises(Exception, match="shards of replay have different items") as found:
                until(lambda: replay.sample(10) is None)
            assert "x: float" in str(found.value)


def test_a_context_without_the_endpoint_is_told_what_is_missing() -> None:
    with context("memory") as ctx, pytest.raises(Exception, match="no address is given for endpoint 'other'"):
        ReplayClient(ctx, "other", batch=1).sample(1)
