"""Writers and readers for tests: contexts of each kind, and writers in threads beside the test's reader."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from callsheet.runtime.context import Context
from callsheet.runtime.keys import Keys
from callsheet.runtime.link.link import TimedOut
from callsheet.runtime.trajectories import Batch, TrajectoryReader, TrajectoryWriter

KEY = b"k" * 32
KINDS = ["memory", "network", "encrypted"]


def context(kind: str, address: str = "127.0.0.1:0", **options: Any) -> Context:
    """A process of the run, as far as its peers can tell."""
    return Context(
        addresses={"t": address},
        keys=Keys(KEY),
        plaintext=kind == "network",
        memory=kind == "memory",
        **options,
    )


@contextmanager
def reading(kind: str, address: str = "127.0.0.1:0", **options: Any) -> Iterator[TrajectoryReader]:
    """A reader, and its end."""
    with context(kind, address, role="learner") as ctx, TrajectoryReader(ctx, "t", **options) as reader:
        yield reader


class Writing(threading.Thread):
    """A writer in a thread: it does its work, closes and is done."""

    def __init__(
        self,
        kind: str,
        address: str,
        work: Callable[[TrajectoryWriter], Any],
        index: int,
        options: dict[str, Any],
    ) -> None:
        super().__init__(daemon=True)
        self.context = context(kind, address, role="actor", index=index)
        self.error: Exception | None = None
        self.counts: Mapping[str, float] = {}
        self._work = work
        self._options = options

    def run(self) -> None:
        try:
            patience = self._options.pop("patience", 5.0)
            with self.context, TrajectoryWriter(self.context, "t", **self._options) as writer:
                try:
                    self._work(writer)
                finally:
                    writer.close(patience)
            self.counts = writer.counts()
        except Exception as error:  # noqa: BLE001 - raised again in the test
            self.error = error


@contextmanager
def writing(
    kind: str, address: str, work: Callable[[TrajectoryWriter], Any], index: int = 0, **options: Any
) -> Iterator[Writing]:
    """A writer at work beside the block; what it raised is raised after it. When the block ends the writer is asked to
    stop, and has some `patience` for items that nobody reads any more."""
    one = Writing(kind, address, work, index, options)
    one.start()
    try:
        yield one
    finally:
        one.context.stop.set()
        one.join(20)
    assert not one.is_alive()
    if one.error is not None:
        raise one.error


def finish(reader: TrajectoryReader, writer: Writing) -> None:
    """Let a writer end whose items were all read."""
    while writer.is_alive():
        with contextlib.suppress(TimedOut):
            reader.read(1, timeout=0.02)
            raise AssertionError("there was another item")


def item(number: int, shape: tuple[int, ...] = (4, 2)) -> dict[str, np.ndarray]:
    """A small rollout that can be told from others."""
    return {"obs": np.full((*shape, 3), number, "f4"), "action": np.full(shape, number, "i4")}


def numbers(batch: Batch) -> list[int]:
    """Which items are in a batch; all of each must have arrived."""
    firsts = batch.firsts[1].reshape(len(batch), -1)
    assert (firsts == firsts[:, :1]).all()
    np.testing.assert_array_equal(batch.firsts[0].reshape(len(batch), -1)[:, 0], firsts[:, 0].astype("f4"))
    return [int(n) for n in firsts[:, 0]]


def write(many: int, shape: tuple[int, ...] = (4, 2), **options: Any) -> Callable[[TrajectoryWriter], None]:
    """Work: so many items."""

    def work(writer: TrajectoryWriter) -> None:
        for number in range(many):
            writer.write(item(number, shape), **options)

    return work
