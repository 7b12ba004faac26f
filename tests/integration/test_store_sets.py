"""Sets of parts: whole or not there, by one writer at a time, in a row that never goes back."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from s3_server import BUCKET

from callsheet.errors import RetryError, UserError
from callsheet.store import BadSet, Fenced, SetWriter, Store, Unreachable, all_sets, claim, latest, open_store


@pytest.fixture(params=["file", "s3"])
def store(request: pytest.FixtureRequest, folder: Path) -> Store:
    """An empty store of each kind."""
    if request.param == "file":
        return open_store((folder / "store").as_uri())
    request.getfixturevalue("s3")
    return open_store(f"s3://{BUCKET}/{secrets.token_hex(4)}")


def write(writer: SetWriter, name: str, **parts: bytes) -> None:
    with writer.write_set(name) as put:
        for part, data in (parts or {"model": name.encode()}).items():
            put.put(part, data)


def names(store: Store) -> list[str]:
    return [found.name for found in all_sets(store)]


def part_key(store: Store, name: str, part: str = "model") -> str:
    return next(e.key for e in store.list() if e.key.startswith(f"{name}.") and e.key.endswith(f"/{part}"))


def test_a_set_is_read_as_it_was_written(store: Store, folder: Path) -> None:
    assert latest(store) is None
    writer = claim(store)
    assert latest(store) is None
    data = {"model": secrets.token_bytes(9_000_000), "optimizer/state": b"", "notes.txt": b"hello"}
    (folder / "notes").write_bytes(data["notes.txt"])
    with writer.write_set("step-120", info={"step": 120, "return": 1.5}) as parts:
        parts.put("model", data["model"])
        parts.put("optimizer/state", iter([b""]))
        parts.put("notes.txt", folder / "notes")
    found = latest(store)
    assert found
    assert (found.name, found.info, sorted(found.parts)) == (
        "step-120",
        {"step": 120, "return": 1.5},
        sorted(data),
    )
    assert {part: found.read(part) for part in found.parts} == data
    assert found.size == 9_000_005
    found.verify()
    found.download("model", folder / "model")
    assert (folder / "model").read_bytes() == data["model"]
    with pytest.raises(UserError, match="no part 'modle'"):
        found.read("modle")


def test_the_latest_is_the_last_one_written(store: Store) -> None:
    writer = claim(store)
    for name in ("a", "b", "c", "b"):
        write(writer, name)
    found = [latest(store)]
    while found[-1]:
        found.append(latest(store, before=found[-1].number))
    assert [one.name for one in found if one] == ["b", "c", "b", "a"] == names(store)


def test_nothing_is_seen_before_the_block_ends(store: Store) -> None:
    writer = claim(store)
    with writer.write_set("a") as parts:
        parts.put("model", b"1")
        assert latest(store) is None
    assert names(store) == ["a"]


def test_a_block_that_fails_leaves_the_latest_and_no_parts(store: Store) -> None:
    writer = claim(store)
    write(writer, "good")
    before = store.list()

    def raises_itself() -> None:
        with writer.write_set("bad") as parts:
            parts.put("model", b"1")
            raise ZeroDivisionError

    def puts_twice() -> None:
        with writer.write_set("bad") as parts:
            parts.put("model", b"1")
            parts.put("model", b"2")

    def breaks() -> Iterator[bytes]:
        yield b"1"
        raise LookupError("my own")

    with pytest.raises(ZeroDivisionError):
        raises_itself()
    with pytest.raises(UserError, match="two parts called 'model'"):
        puts_twice()
    with pytest.raises(LookupError, match="my own"):
        write(writer, "bad", x=b"", model=breaks())  # type: ignore[arg-type]
    assert store.list() == before
    write(writer, "next")
    assert names(store) == ["next", "good"]


def test_parts_travel_together_but_not_too_many(store: Store) -> None:
    writer = claim(store)
    lock, now, most = threading.Lock(), 0, 0
    together = threading.Barrier(3, timeout=20)

    def slow() -> Iterator[bytes]:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        together.wait()
        yield b"x"
        with lock:
            now -= 1

    with writer.write_set("a", parallel=3) as parts:
        for n in range(9):
            parts.put(str(n), slow())
    assert most == 3
    assert len(all_sets(store)[0].parts) == 9


@pytest.mark.parametrize("name", ["", "a/b"])
def test_a_name_is_one_word(store: Store, name: str) -> None:
    with pytest.raises(UserError), claim(store).write_set(name):
        pass


def test_a_writer_that_was_replaced_can_finish_nothing(store: Store) -> None:
    old = claim(store)
    write(old, "one")
    pending = old.write_set("two")
    pending.__enter__().put("model", b"old")
    new = claim(store)
    write(new, "two", model=b"new")
    with pytest.raises(Fenced) as caught:
        pending.__exit__(None, None, None)
    assert "another writer has taken over" in caught.value.message
    for work in (lambda: write(old, "three"), lambda: old.keep(1)):
        with pytest.raises(Fenced):
            work()
    write(new, "three")
    assert names(store) == ["three", "two", "one"]
    assert new.fence > old.fence
    assert latest(store, before=all_sets(store)[0].number).read("model") == b"new"  # type: ignore[union-attr]
    folders = [entry.key.partition(".")[0] for entry in store.list() if not entry.key.startswith("manifests")]
    assert folders == ["one", "three", "two"], "parts of what it could not finish are gone"


def test_a_writer_that_was_replaced_long_ago_finds_its_number_free_and_still_cannot_write(
    store: Store,
) -> None:
    old = claim(store)
    write(old, "one")
    new = claim(store)
    for n in range(5):
        write(new, f"new-{n}")
    new.keep(2)
    with pytest.raises(Fenced):
        write(old, "late")
    assert names(store) == ["new-4", "new-3"]


def test_a_record_that_a_replaced_writer_left_where_another_had_been_does_not_count(store: Store) -> None:
    """As above, killed before it could take its record away again."""
    old = claim(store)
    write(old, "one")
    new = claim(store)
    for n in range(3):
        write(new, f"new-{n}")
    new.keep(2)
    old._confirm = lambda number: None  # type: ignore[method-assign]
    write(old, "late")
    assert len(store.list("manifests")) == 3
    assert names(store) == ["new-2", "new-1"]
    assert latest(store, before=all_sets(store)[-1].number) is None


def test_of_many_who_claim_each_has_a_fence_of_its_own_and_the_last_one_writes(store: Store) -> None:
    with ThreadPoolExecutor(10) as pool:
        writers = list(pool.map(lambda _: claim(store), range(10)))
    assert len({writer.fence for writer in writers}) == 10
    *others, last = sorted(writers, key=lambda writer: writer.fence)
    for writer in others:
        with pytest.raises(Fenced):
            write(writer, "no")
    write(last, "yes")
    assert names(store) == ["yes"]


def test_claims_do_not_pile_up(store: Store) -> None:
    write(claim(store), "one")
    for _ in range(5):
        claim(store)
    assert len(store.list("manifests")) <= 3
    assert names(store) == ["one"]


def test_a_later_attempt_is_not_replaced_by_an_earlier_one(store: Store) -> None:
    writer = claim(store, order=3)
    write(writer, "one")
    with pytest.raises(Fenced, match="its order is 3, ours 2"):
        claim(store, order=2)
    write(writer, "two")
    write(claim(store, order=3), "three")
    write(claim(store), "four")
    assert names(store) == ["four", "three", "two", "one"]


def test_a_manifest_whose_answer_was_lost_is_not_lost(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = claim(store)
    real = Store.put_if_absent

    def loses_the_answer(self: Store, key: str, data: bytes) -> str | None:
        real(self, key, data)
        monkeypatch.undo()
        raise Unreachable("no answer")

    monkeypatch.setattr(Store, "put_if_absent", loses_the_answer)
    with pytest.raises(Unreachable):
        write(writer, "one")
    write(writer, "two")
    assert names(store) == ["two", "one"]
    assert latest(store, before=all_sets(store)[0].number).read("model") == b"one"  # type: ignore[union-attr]


def test_a_part_that_changed_is_found_when_it_is_read(store: Store, folder: Path) -> None:
    writer = claim(store)
    write(writer, "one")
    write(writer, "two")
    store.put(part_key(store, "two"), b"owt")
    found = latest(store)
    assert found
    with pytest.raises(BadSet) as caught:
        found.read("model")
    assert "'two'" in caught.value.message
    assert f"latest(store, before={found.number})" in caught.value.fix
    with pytest.raises(BadSet):
        found.verify()
    with pytest.raises(BadSet):
        found.download("model", folder / "model")
    assert not (folder / "model").exists()
    assert latest(store, before=found.number).read("model") == b"one"  # type: ignore[union-attr]


def spoil(store: Store, how: str) -> None:
    """Damage the newest set."""
    key = store.list("manifests")[-1].key
    text = store.get(key)
    part = part_key(store, "two")
    if how == "part missing":
        store.delete(part)
    elif how == "part too short":
        store.put(part, b"t")
    else:
        store.put(
            key,
            {
                "manifest empty": b"",
                "manifest cut": text[: len(text) // 2],
                "manifest changed": text.replace(b'"two', b'"TWO'),
                "manifest of another program": b'{"hello": [1, 2]}',
                "manifest of a later version": text.replace(b"callsheet.set/1", b"callsheet.set/2"),
                "manifest copied": store.get(store.list("manifests")[-2].key),
                "manifest no object": b"[]",
            }[how],
        )


@pytest.mark.parametrize(
    "how",
    [
        "part missing",
        "part too short",
        "manifest empty",
        "manifest cut",
        "manifest changed",
        "manifest of another program",
        "manifest of a later version",
        "manifest copied",
        "manifest no object",
    ],
)
def test_a_bad_set_is_an_error_and_the_one_before_it_is_found(
    store: Store, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    writer = claim(store)
    write(writer, "one")
    write(writer, "two")
    spoil(store, how)
    with pytest.raises(BadSet) as caught:
        latest(store)
    assert store.url in caught.value.message
    number = int(store.list("manifests")[-1].key[-17:-5])
    assert f"before={number})" in caught.value.fix
    assert latest(store, before=number).name == "one"  # type: ignore[union-attr]
    with caplog.at_level(logging.WARNING):
        assert latest(store, skip_bad=True).name == "one"  # type: ignore[union-attr]
    assert "looking for an earlier one" in caplog.text
    write(claim(store), "three")
    assert latest(store).name == "three"  # type: ignore[union-attr]


def test_keep_removes_all_but_the_newest_and_the_named(store: Store) -> None:
    writer = claim(store)
    for n in range(6):
        write(writer, f"s{n}")
    assert writer.keep(2, also=("s1",)) == ["s3", "s2", "s0"]
    assert names(store) == ["s5", "s4", "s1"]
    assert sorted(e.key.partition(".")[0] for e in store.list() if not e.key.startswith("manifests")) == [
        "s1",
        "s4",
        "s5",
    ]
    for found in all_sets(store):
        found.verify()
    with pytest.raises(UserError, match="would remove the latest"):
        writer.keep(0)
    write(claim(store), "s6")
    assert names(store) == ["s6", "s5", "s4", "s1"]


def test_a_removal_that_is_cut_short_leaves_parts_without_a_set_never_a_set_without_parts(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = claim(store)
    for n in range(3):
        write(writer, f"s{n}")
    real = Store.delete

    def only_manifests(self: Store, *keys: str) -> None:
        if not all(key.startswith("manifests/") for key in keys):
            raise Unreachable("killed here")
        real(self, *keys)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "delete", only_manifests)
        with pytest.raises(Unreachable):
            writer.keep(1)
    assert names(store) == ["s2"]
    assert len(store.list()) == 4
    claim(store)
    assert len(store.list()) == 3, "the set, its part and the new claim"
    latest(store).verify()  # type: ignore[union-attr]


def test_who_claims_removes_parts_of_replaced_writers_and_nothing_else(store: Store) -> None:
    old = claim(store)
    write(old, "kept")
    store.put(f"orphan.{old.fence}-0123abcd/model", b"a killed writer's")
    store.put("somebody/elses", b"")
    store.put(f"another/row.{old.fence}-0123abcd/model", b"fences of a row below say nothing here")
    store.put(f"future.{old.fence + 5}-0123abcd/model", b"a later writer's")
    claim(store)
    left = {entry.key.partition(".")[0] for entry in store.list() if not entry.key.startswith("manifests")}
    assert left == {"kept", "somebody/elses", "another/row", "future"}
    for found in all_sets(store):
        found.verify()


def test_parts_that_a_failed_set_left_go_once_there_is_a_later_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not before: the answer may have got lost, and the manifest still be on its way."""
    writer = claim(store)
    with monkeypatch.context() as patch:

        def never_answers(self: Store, key: str, data: bytes) -> str | None:
            raise Unreachable("no answer")

        patch.setattr(Store, "put_if_absent", never_answers)
        with pytest.raises(Unreachable):
            write(writer, "lost")
    writer.keep(1)
    assert part_key(store, "lost")
    write(writer, "next")
    writer.keep(1)
    assert sorted(entry.key.partition(".")[0] for entry in store.list("")) == [
        "manifests/000000000002",
        "next",
    ]
    latest(store).verify()  # type: ignore[union-attr]


def test_no_parts_are_swept_while_a_manifest_cannot_be_read(store: Store) -> None:
    writer = claim(store)
    write(writer, "one")
    write(writer, "two")
    spoil(store, "manifest cut")
    writer = claim(store)
    assert part_key(store, "two")
    write(writer, "three")
    writer.keep(1)
    claim(store)
    assert not [entry for entry in store.list() if entry.key.startswith("two")]
    assert names(store) == ["three"]


def test_a_set_that_is_removed_while_it_is_read_is_told_from_a_damaged_one(store: Store) -> None:
    writer = claim(store)
    write(writer, "one")
    found = latest(store)
    assert found
    write(writer, "two")
    writer.keep(1)
    with pytest.raises(RetryError, match="removed while it was being read"):
        found.read("model")
