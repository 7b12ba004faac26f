"""Replay between a server and its clients: insert, sample, change priorities, wait for each other and say why."""

from __future__ import annotations

import numpy as np
import pytest
from replay_servers import KINDS, client, reason, serving, until

from callsheet.errors import UserError
from callsheet.runtime.link.connector import Refused
from callsheet.runtime.replay import Table, cut
from callsheet.runtime.replay.client.inserter import Receipt


def item(number: int, size: int = 8) -> dict[str, np.ndarray]:
    return {"row": np.full(size, number, np.float32), "number": np.array(number)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [8, 50_000], ids=["small", "large"])
def test_what_is_inserted_can_be_sampled(kind: str, size: int) -> None:
    with (
        serving(kind, Table(items=1000)) as shard,
        client(kind, shard.address, batch=64) as replay,
    ):
        for number in range(100):
            replay.insert(item(number, size), timeout=10)
        replay.flush(10)
        seen: set[int] = set()
        while len(seen) < 100:
            sample = replay.sample(10)
            assert (sample.arrays["row"] == sample.arrays["number"][:, None]).all()
            assert sample.probabilities[0] == pytest.approx(1 / sample.size)
            seen |= set(sample.arrays["number"].tolist())
        assert seen == set(range(100))
        assert replay.size == 100


@pytest.mark.parametrize("kind", KINDS)
def test_priorities_move_the_draws(kind: str) -> None:
    with (
        serving(kind, Table(kind="prioritized", alpha=1.0)) as shard,
        client(kind, shard.address, batch=256, ahead=0) as replay,
    ):
        replay.insert_many({"number": np.arange(50)}, np.ones(50))
        replay.flush(10)
        sample = replay.sample(10)
        favorite = sample.keys[:1]
        number = int(sample.arrays["number"][0])
        others = np.unique(sample.keys[sample.arrays["number"] != number])
        replay.update(others, np.zeros(len(others)))
        replay.update(favorite, [7.0])
        sample = replay.sample(10)
        share = np.isin(sample.keys, np.concatenate([favorite, others]))
        assert (sample.arrays["number"][share] == number).all(), "those with priority 0 are not drawn"
        chance = sample.probabilities[sample.arrays["number"] == number][0]
        assert chance == pytest.approx(7 / (7 + 49 - len(others)))


def test_importance_weights_make_up_for_the_chances() -> None:
    with (
        serving("memory", Table(kind="prioritized", alpha=1.0)) as shard,
        client("memory", shard.address, batch=512) as replay,
    ):
        replay.insert_many({"number": np.arange(2)}, [1.0, 3.0])
        replay.flush(10)
        sample = replay.sample(10)
        rare = sample.arrays["number"] == 0
        assert sample.weights(1.0)[rare] == pytest.approx(1.0)
        assert sample.weights(1.0)[~rare] == pytest.approx(1 / 3)
        assert sample.weights(0.0) == pytest.approx(1.0)


def test_a_sample_goes_into_arrays_of_the_callers() -> None:
    with (
        serving("memory", Table()) as shard,
        client("memory", shard.address, batch=16) as replay,
    ):
        replay.insert_many({"row": np.ones((40, 3), np.float32)})
        out = {"row": np.zeros((16, 3), np.float32)}
        assert replay.sample(10, out=out).arrays["row"] is out["row"]
        assert (out["row"] == 1).all()
        with pytest.raises(UserError, match=r"(?s)float64\[16, 3\].*float32\[16, 3\]"):
            replay.sample(10, out={"row": np.zeros((16, 3))})
        with pytest.raises(UserError, match="missing"):
            replay.sample(10, out={})


def test_a_sample_stays_as_it_is_until_the_next_one() -> None:
    with (
        serving("memory", Table(items=100)) as shard,
        client("memory", shard.address, batch=32, ahead=3) as replay,
        client("memory", shard.address, role="actor") as actor,
    ):
        for number in range(3000):
            actor.insert(item(number))
            if number > 200 and number % 50 == 0:
                sample = replay.sample(10)
                before = sample.arrays["row"].copy()
                assert not sample.arrays["row"].flags.writeable
                for more in range(60):
                    actor.insert(item(number + more))
                actor.flush(10)
                assert np.array_equal(sample.arrays["row"], before)


@pytest.mark.parametrize("kind", ["memory", "network"])
def test_a_queue_hands_each_item_out_once_and_makes_writers_wait(kind: str) -> None:
    with (
        serving(kind, Table(kind="fifo", items=20)) as shard,
        client(kind, shard.address, batch=5) as replay,
        client(kind, shard.address, role="actor", window=1) as actor,
    ):
        sent: list[Receipt] = []
        why = reason(lambda timeout: sent.append(actor.insert(item(len(sent), 2000), timeout=timeout)))
        assert "inserts wait for samples: the queue is full with 20 items" in why
        taken = [number for _ in range(4) for number in replay.sample(10).arrays["number"].tolist()]
        assert taken == list(range(20))


def test_a_batch_larger_than_the_queue_is_a_mistake() -> None:
    table = Table(kind="fifo", items=20, schema=None)
    with (
        serving("memory", table) as shard,
        client("memory", shard.address, batch=21) as replay,
        client("memory", shard.address, role="actor") as actor,
    ):
        actor.insert(item(1))
        actor.flush(10)
        with pytest.raises(UserError, match="a batch of 21 items from a queue of 20"):
            replay.sample(10)


@pytest.mark.parametrize("kind", ["memory", "network"])
def test_samples_wait_for_the_first_items_and_say_so(kind: str) -> None:
    with (
        serving(kind, Table(min_size=100)) as shard,
        client(kind, shard.address, batch=4) as replay,
        client(kind, shard.address, role="actor") as actor,
    ):
        actor.insert_many({"number": np.arange(40)})
        actor.flush(10)
        assert "samples wait for items: there are 40 of 100" in reason(replay.sample)
        actor.insert_many({"number": np.arange(60)})
        assert replay.sample(10).size == 100


def test_inserts_wait_for_samples_and_say_so() -> None:
    table = Table(items=1000, samples_per_insert=2.0, min_size=10, tolerance=20.0)
    with (
        serving("memory", table) as shard,
        client("memory", shard.address, batch=10, ahead=0) as replay,
        client("memory", shard.address, role="actor", window=1) as actor,
    ):
        why = reason(lambda timeout: actor.insert(item(1, 20_000), timeout=timeout))
        assert "inserts wait for samples: 0 samples of 20 inserts, and 2 for each insert are wanted" in why
        for _ in range(5):
            replay.sample(10)
        until(lambda: shard.server.counts()["inserts"] > 20)


def test_samples_per_insert_are_held_while_both_sides_run() -> None:
    ratio, tolerance = 3.0, 60.0
    table = Table(samples_per_insert=ratio, min_size=50, tolerance=tolerance)
    with (
        serving("memory", table) as shard,
        client("memory", shard.address, batch=16, ahead=1) as replay,
        client("memory", shard.address, role="actor", window=1) as actor,
    ):
        for number in range(400):
            actor.insert(item(number), timeout=10)
            if number >= 60:
                for _ in range(3 if number % 16 == 0 else 0):
                    replay.sample(10)
        limiter = shard.server.table().limiter
        assert abs(limiter.surplus) <= tolerance + ratio + 16


@pytest.mark.parametrize("kind", KINDS)
def test_another_kind_of_item_is_refused_with_the_difference(kind: str) -> None:
    with serving(kind, Table()) as shard:
        with client(kind, shard.address, role="actor") as actor:
            actor.insert(item(1))
            actor.flush(10)
        with (
            client(kind, shard.address, role="actor", index=1) as other,
            pytest.raises(Refused, match=r"number: int32\[\] against number: int64\[\]"),
        ):
            other.insert({"row": np.zeros(8, np.float32), "number": np.int32(1)}, timeout=10)


def test_a_table_that_needs_more_memory_than_there_is_refuses_its_first_writer_and_lives_on() -> None:
    with serving("memory", [Table(items=10**9), Table("small", items=10)]) as shard:
        with (
            client("memory", shard.address) as actor,
            pytest.raises(Refused, match=r"needs 1,000,000,000,000 bytes .* bytes of memory"),
        ):
            actor.insert({"row": np.zeros(1000, np.uint8)}, timeout=10)
        with client("memory", shard.address, table="small", batch=1) as replay:
            replay.insert(item(3))
            assert replay.sample(10).size == 1


def test_a_table_that_is_not_there_is_refused_with_those_that_are() -> None:
    with serving("memory", [Table("a"), Table("b")]) as shard:
        with (
            client("memory", shard.address, table="c", batch=1) as replay,
            pytest.raises(Refused, match="there is no table 'c', but a, b"),
        ):
            replay.sample(10)
        with client("memory", shard.address, table="b", batch=2) as replay:
            replay.insert(item(3))
            assert replay.sample(10).arrays["number"].tolist() == [3, 3]
        assert shard.server.table("a").size == 0


def test_a_durable_writer_is_refused_where_nothing_becomes_durable() -> None:
    with (
        serving("memory", Table()) as shard,
        client("memory", shard.address, durable=True) as actor,
        pytest.raises(Refused, match="takes no snapshots"),
    ):
        actor.insert(item(1), timeout=10)


@pytest.mark.parametrize("priority", [-1.0, float("nan"), float("inf"), 1e31])
def test_a_priority_that_is_none_is_refused_at_once(priority: float) -> None:
    with (
        serving("memory", Table()) as shard,
        client("memory", shard.address, batch=1) as replay,
    ):
        with pytest.raises(UserError, match="is not a valid priority"):
            replay.insert(item(1), priority)
        replay.insert(item(1))
        with pytest.raises(UserError, match="is not a valid priority"):
            replay.update(replay.sample(10).keys, [priority])


def test_arrays_with_different_numbers_of_items_are_refused() -> None:
    with serving("memory", Table()) as shard, client("memory", shard.address) as actor:
        with pytest.raises(UserError, match=r"\[2, 3\] items"):
            actor.insert_many({"a": np.zeros(2), "b": np.zeros(3)})
        with pytest.raises(UserError, match="have the shape"):
            actor.insert_many({"a": np.zeros(2)}, [1.0])
        with pytest.raises(UserError, match="does not sample"):
            actor.sample(1)


def test_episodes_become_sequences_that_are_sampled_whole() -> None:
    with (
        serving("memory", Table(kind="prioritized")) as shard,
        client("memory", shard.address, batch=8) as replay,
    ):
        episode = {"observation": np.random.default_rng(0).random((37, 3)), "reward": np.ones(37, np.float32)}
        replay.insert_many(cut(episode, 10, burn_in=5))
        sample = replay.sample(10)
        assert sample.arrays["observation"].shape == (8, 15, 3)
        assert sample.arrays["learn"].sum(axis=1).max() == 10


@pytest.mark.parametrize("kind", ["memory", "network"])
def test_what_a_writer_inserted_arrives_whole_when_it_falls_silent_without_a_flush(kind: str) -> None:
    with (
        serving(kind, Table(kind="fifo")) as shard,
        client(kind, shard.address) as actor,
        client(kind, shard.address, batch=1001) as learner,
    ):
        for number in range(1001):
            actor.insert(item(number))
        sample = learner.sample(30)
        assert sample.arrays["number"].tolist() == list(range(1001))
        assert (sample.arrays["row"] == sample.arrays["number"][:, None]).all()


@pytest.mark.parametrize("kind", ["memory", "network"])
def test_priorities_in_any_number_are_taken(kind: str) -> None:
    with (
        serving(kind, Table(kind="prioritized", items=20_000)) as shard,
        client(kind, shard.address, batch=10_000) as replay,
    ):
        replay.insert_many({"number": np.arange(10_000)})
        keys = replay.sample(10).keys
        for _ in range(50):
            replay.update(keys, np.ones(len(keys)), timeout=10)
        until(lambda: shard.server.counts()["updates"] == 500_000)
        assert replay.counts()["dropped_updates"] == 0
