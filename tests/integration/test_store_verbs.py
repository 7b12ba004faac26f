"""One interface, whatever is behind it: each test runs with a folder and with a real S3 server."""

from __future__ import annotations

import hashlib
import os
import secrets
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from s3_server import BUCKET

from callsheet.errors import UserError
from callsheet.store import NotFound, Store, open_store

CHUNK = 8 * 1024 * 1024


@pytest.fixture(params=["file", "s3"])
def store(request: pytest.FixtureRequest, folder: Path) -> Store:
    """An empty store of each kind."""
    if request.param == "file":
        return open_store((folder / "store").as_uri())
    request.getfixturevalue("s3")
    return open_store(f"s3://{BUCKET}/{secrets.token_hex(4)}")


def keys(store: Store, folder: str = "") -> list[str]:
    return [entry.key for entry in store.list(folder)]


def test_what_is_put_is_got(store: Store) -> None:
    store.put("a/b.bin", b"hello")
    assert store.get("a/b.bin") == b"hello"
    assert store.exists("a/b.bin")
    assert store.head("a/b.bin").size == 5
    store.put("a/b.bin", b"again")
    assert store.get("a/b.bin") == b"again"


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 5])
def test_every_size_comes_back_as_it_was(store: Store, size: int) -> None:
    data = secrets.token_bytes(size)
    store.put("x", data)
    assert store.head("x").size == size
    assert hashlib.sha256(store.get("x")).digest() == hashlib.sha256(data).digest()


def test_bytes_come_from_memory_from_a_file_or_from_an_iterator(store: Store, folder: Path) -> None:
    data = secrets.token_bytes(2 * CHUNK + 1)
    source = folder / "source"
    source.write_bytes(data)
    store.put("memory", memoryview(bytearray(data)))
    store.put("file", source)
    store.put("iterator", (data[at : at + 100_000] for at in range(0, len(data), 100_000)))
    store.put("nothing", iter([]))
    assert store.get("memory") == store.get("file") == store.get("iterator") == data
    assert store.get("nothing") == b""
    with pytest.raises(TypeError, match=r"pathlib\.Path"):
        store.put("text", "text")


def test_a_download_appears_whole_and_tells_its_progress(store: Store, folder: Path) -> None:
    data = secrets.token_bytes(2 * CHUNK + 1)
    up: list[tuple[int, int | None]] = []
    down: list[tuple[int, int | None]] = []
    store.put("x", data, progress=lambda done, total: up.append((done, total)))
    store.download("x", folder / "x", progress=lambda done, total: down.append((done, total)))
    assert (folder / "x").read_bytes() == data
    for told in (up, down):
        assert told == [(CHUNK, len(data)), (2 * CHUNK, len(data)), (len(data), len(data))]


def test_a_range_ends_where_the_object_ends(store: Store) -> None:
    store.put("x", b"0123456789")
    assert store.get_range("x", 2, 3) == b"234"
    assert store.get_range("x", 8, 100) == b"89"
    assert store.get_range("x", 10, 1) == b""
    assert store.get_range("x", 99, 1) == b""
    assert store.get_range("x", 3, 0) == b""
    with pytest.raises(UserError):
        store.get_range("x", -1, 5)


def test_a_list_is_sorted_and_knows_folders(store: Store) -> None:
    assert store.list() == []
    for key in ("b/2", "a", "b/1", "b/c/3", "bc", "b-"):
        store.put(key, key.encode())
    assert keys(store) == ["a", "b-", "b/1", "b/2", "b/c/3", "bc"]
    assert keys(store, "b") == ["b/1", "b/2", "b/c/3"]
    assert keys(store, "nothing") == []
    assert [entry.key for entry in store.list("b", after="b/1")] == ["b/2", "b/c/3"]
    assert {entry.key: entry.size for entry in store.list()}["b/c/3"] == 5


def test_a_list_may_be_long(store: Store) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: store.put(f"many/{n:04d}", b""), range(1_100)))
    assert keys(store) == [f"many/{n:04d}" for n in range(1_100)]
    store.delete(*keys(store))
    assert store.list() == []


def test_what_is_deleted_is_gone_and_twice_does_not_matter(store: Store) -> None:
    store.put("a/b/c", b"")
    store.put("a/d", b"")
    store.delete("a/b/c", "a/nothing", "nothing")
    store.delete("a/b/c")
    assert keys(store) == ["a/d"]
    with pytest.raises(NotFound, match="a/b/c"):
        store.get("a/b/c")
    assert not store.exists("a/b/c")


@pytest.mark.parametrize("verb", ["get", "head"])
def test_what_is_not_there_is_named(store: Store, verb: str) -> None:
    with pytest.raises(NotFound, match=f"there is no {store.url}/a/nothing"):
        getattr(store, verb)("a/nothing")


def test_a_store_below_a_prefix_sees_that_alone(store: Store) -> None:
    below = store.sub("runs/7")
    below.put("x", b"1")
    assert below.url == f"{store.url}/runs/7"
    assert keys(store) == ["runs/7/x"]
    assert keys(below) == ["x"]
    assert keys(store.sub("runs").sub("8")) == []
    assert open_store(below.url).get("x") == b"1"


NAMES = [
    "a b",
    "ü-ñ-本",
    "a%20b",
    "a#b",
    "a?b",
    "a*b",
    "a[1]",
    "a+b&c=d",
    "it's",
    'a"b',
    ".hidden",
    "a:b@c,d!$()",
]


def test_names_are_taken_as_they_are(store: Store) -> None:
    for name in NAMES:
        store.put(f"names/{name}", name.encode())
    assert keys(store) == sorted(f"names/{name}" for name in NAMES)
    assert all(store.get(f"names/{name}") == name.encode() for name in NAMES)


@pytest.mark.parametrize(
    "key", ["", "/a", "a/", "a//b", "../a", "a/./b", "a\\b", "a\nb", "x" * 901, "a~/b", "a~"]
)
def test_names_that_some_store_would_take_otherwise_are_refused_by_all(store: Store, key: str) -> None:
    with pytest.raises(UserError, match="is not a valid key"):
        store.put(key, b"")


def test_put_if_absent_never_overwrites(store: Store) -> None:
    assert store.put_if_absent("x", b"first")
    assert store.put_if_absent("x", b"second") is None
    assert store.get("x") == b"first"
    store.delete("x")
    assert store.put_if_absent("x", b"third")


def test_replace_if_replaces_only_what_was_seen(store: Store) -> None:
    first = store.put("x", b"1")
    assert store.head("x").etag == first
    second = store.replace_if("x", b"2", first)
    assert second
    assert second != first
    assert store.replace_if("x", b"3", first) is None
    assert store.get("x") == b"2"
    assert store.replace_if("nothing", b"1", first) is None
    assert not store.exists("nothing")
    store.delete("x")
    assert store.replace_if("x", b"4", second) is None


def test_of_a_hundred_who_create_one_succeeds(store: Store) -> None:
    for round in range(5):
        key = f"create/{round}"
        with ThreadPoolExecutor(100) as pool:
            answers = list(pool.map(lambda n, key=key: store.put_if_absent(key, b"%d" % n), range(100)))
        winners = [n for n, etag in enumerate(answers) if etag]
        assert len(winners) == 1
        assert store.get(key) == b"%d" % winners[0]


def test_of_a_hundred_who_replace_one_succeeds(store: Store) -> None:
    for round in range(5):
        key = f"replace/{round}"
        seen = store.put(key, b"before")
        with ThreadPoolExecutor(100) as pool:
            answers = list(
                pool.map(lambda n, key=key, seen=seen: store.replace_if(key, b"%d" % n, seen), range(100))
            )
        winners = [n for n, etag in enumerate(answers) if etag]
        assert len(winners) == 1
        assert store.get(key) == b"%d" % winners[0]


def test_counting_together_loses_nothing(store: Store) -> None:
    store.put("count", b"0")

    def add_ten() -> None:
        done = 0
        while done < 10:
            seen = store.head("count").etag
            value = int(store.get("count"))
            done += store.replace_if("count", b"%d" % (value + 1), seen) is not None and 1

    # Between head and get another one may count: the etag is then old, and nothing is written.
    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(add_ten) for _ in range(4)]:
            future.result()
    assert store.get("count") == b"40"


def test_a_large_object_needs_little_memory(store: Store, folder: Path) -> None:
    """64 MB through a few chunks: counted by Python's own allocator."""
    source, target = folder / "source", folder / "target"
    with source.open("wb") as file:
        for _ in range(8):
            file.write(os.urandom(CHUNK))
    tracemalloc.start()
    try:
        store.put("x", source)
        store.download("x", target)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 7 * CHUNK
    assert hashlib.sha256(source.read_bytes()).digest() == hashlib.sha256(target.read_bytes()).digest()


def test_an_iterator_that_fails_leaves_nothing(store: Store) -> None:
    def breaks() -> object:
        yield b"x" * (CHUNK + 1)
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        store.put("x", breaks())
    assert store.list() == []
