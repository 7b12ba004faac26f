"""The store compared with what it builds on: 100 MB to a folder and to an S3 server, in turns.

    python benchmarks/store.py [--megabytes 100] [--rounds 5]

A folder is compared with a plain write, fsync and read of the same bytes; the S3 server (SeaweedFS on loopback, as in
the tests) with plain obstore calls. Every number is the median of its rounds; rounds alternate, so that both sides see
the same machine. A ratio above 1 means that the store is faster.
"""

from __future__ import annotations

import argparse
import os
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import obstore
from obstore.store import S3Store

from callsheet.store import claim, latest, open_store

Work = Callable[[], object]


def seconds(work: Work) -> float:
    """How long a call takes."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def compare(what: str, ours: Work, plain: Work, size: int, rounds: int) -> None:
    """Both in turns; prints rates and the ratio of the medians."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for work, found in zip((ours, plain), times, strict=True):
            found.append(seconds(work))
    mine, theirs = map(statistics.median, times)
    print(
        f"{what:28} {size / mine / 1e6:8,.0f} MB/s   plain {size / theirs / 1e6:8,.0f} MB/s"
        f"   ratio {theirs / mine:.2f}"
    )


def folder(data: bytes, rounds: int, where: Path) -> None:
    """put and get beside write, fsync and read."""
    store = open_store(where / "store")
    path = where / "plain"

    def write() -> None:
        with path.open("wb", buffering=0) as file:
            file.write(data)
            os.fsync(file.fileno())

    compare("put to file://", lambda: store.put("x", data), write, len(data), rounds)
    compare("get from file://", lambda: store.get("x"), path.read_bytes, len(data), rounds)


def cloud(data: bytes, rounds: int, bucket: str) -> None:
    """put and get beside obstore's own blocking calls."""
    store = open_store(f"s3://{bucket}/bench")
    plain = S3Store(bucket, client_options={"allow_http": True, "timeout": "5min"})
    compare(
        "put to s3://",
        lambda: store.put("x", data),
        lambda: obstore.put(plain, "bench/y", data),
        len(data),
        rounds,
    )
    compare(
        "get from s3://",
        lambda: store.get("x"),
        lambda: bytes(obstore.get(plain, "bench/y").bytes()),
        len(data),
        rounds,
    )
    small = min(20, rounds * 4)
    for what, ours, theirs in (
        (
            "put 1 KB to s3://",
            lambda: store.put("s", data[:1000]),
            lambda: obstore.put(plain, "bench/s", data[:1000]),
        ),
        ("get 1 KB from s3://", lambda: store.get("s"), lambda: bytes(obstore.get(plain, "bench/s").bytes())),
    ):
        mine, plainly = [], []
        for _ in range(10 * small):
            mine.append(seconds(ours))
            plainly.append(seconds(theirs))
        a, b = statistics.median(mine) * 1e3, statistics.median(plainly) * 1e3
        print(f"{what:28} {a:8.2f} ms     plain {b:8.2f} ms     ratio {b / a:.2f}")


def sets(data: bytes, rounds: int, url: str) -> None:
    """A set of four parts, written and read with all hashes checked."""
    store = open_store(url)
    writer = claim(store)
    quarter = len(data) // 4

    def write() -> None:
        with writer.write_set("x") as parts:
            for n in range(4):
                parts.put(str(n), memoryview(data)[n * quarter : (n + 1) * quarter])
        writer.keep(1)

    def read() -> None:
        found = latest(store)
        assert found
        for part in found.parts:
            found.read(part)

    for what, work in (("write a set of 4 to", write), ("read it, checked, from", read)):
        taken = statistics.median(seconds(work) for _ in range(rounds))
        print(f"{what} {url.partition(':')[0]}:// {len(data) / taken / 1e6:8,.0f} MB/s")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    data = secrets.token_bytes(options.megabytes * 1_000_000)
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "integration"))
    from s3_server import BUCKET, serving

    print(f"{options.megabytes} MB, {options.rounds} rounds, load {os.getloadavg()[0]:.1f} at the start")
    with tempfile.TemporaryDirectory() as where:
        folder(data, options.rounds, Path(where))
        sets(data, options.rounds, (Path(where) / "sets").as_uri())
        with serving(Path(where) / "server") as server:
            os.environ.update(server.environment())
            cloud(data, options.rounds, BUCKET)
            sets(data, options.rounds, f"s3://{BUCKET}/sets")


if __name__ == "__main__":
    main()
