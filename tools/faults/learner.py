"""The learner of the small data plane: what it has read is durable when a checkpoint has it, and never before."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import numpy as np

from callsheet.errors import RetryError
from callsheet.runtime import ReplayClient, Stopping, TrajectoryReader
from callsheet.runtime.link.link import TimedOut
from callsheet.runtime.trajectories import Batch
from callsheet.store import SetWriter, claim, latest, open_store
from tools.faults.programs import Here

CHECKPOINTS = "checkpoints/learner"
Seen = dict[str, list[list[int]]]
"""For each writer the pairs of incarnation and last sequence; every one up to it was seen once."""


def learn(here: Here) -> None:
    """Read, check, and store checkpoints; a store that is away for a while does not stop it."""
    store = open_store(here.member.storage, patience=5.0).sub(CHECKPOINTS)
    writer: SetWriter = claim(store)
    found = latest(store)
    info: dict[str, Any] = dict(found.info) if found else {"cursor": None, "seen": {}}
    with contextlib.ExitStack() as stack:
        reader = stack.enter_context(TrajectoryReader(here.context, "trajectories", cursor=info["cursor"]))
        others: list[_Sampling | _Verdicts] = []
        if "replay" in here.member.addresses:
            others.append(_Sampling(here, stack))
        if "evaluations" in here.member.addresses:
            others.append(_Verdicts(here, stack))
        learning = _Learning(here, reader, writer, dict(info["seen"]))
        try:
            while True:
                learning.step()
                for other in others:
                    other.step()
        except Stopping:
            learning.checkpoint()


class _Learning:
    """Rollouts in, checkpoints out."""

    def __init__(self, here: Here, reader: TrajectoryReader, writer: SetWriter, seen: Seen) -> None:
        self._here = here
        self._reader = reader
        self._writer = writer
        self._seen = seen
        self._beat = here.beat("learning")
        self._saved = time.monotonic()
        self._number = 0

    def step(self) -> None:
        """Read a little; a checkpoint when it is time."""
        try:
            batch = self._reader.read(1 if self._here.finishing else 8, timeout=0.05)
        except TimedOut:
            pass
        else:
            self._check(batch)
            self._beat.tick(len(batch))
        if time.monotonic() - self._saved > self._here.member.every:
            self._saved = time.monotonic()
            try:
                self.checkpoint()
            except RetryError as error:
                print(f"{error.message}; training continues and will retry", flush=True)

    def _check(self, batch: Batch) -> None:
        for row in range(len(batch)):
            who = self._reader.writers[batch.writers[row]]
            life, sequence = int(batch.incarnations[row]), int(batch.sequences[row])
            if not (batch["x"][row] == sequence).all() or batch["id"][row].tolist() != [life, sequence]:
                self._here.wrong(f"a torn rollout: {who} {life} {sequence}")
            marks = self._seen.setdefault(who, [])
            mark = next((one for one in marks if one[0] == life), None)
            if mark is None:
                marks.append(mark := [life, 0])
            if sequence != mark[1] + 1:
                self._here.wrong(f"{who} {life}: {sequence} after {mark[1]}")
            mark[1] = sequence

    def checkpoint(self) -> None:
        """Store what was seen with the cursor, and tell the writers."""
        cursor = self._reader.cursor()
        self._number += 1
        info = {"cursor": cursor, "seen": self._seen}
        with self._writer.write_set(f"checkpoint-{self._number:06d}", info=info) as parts:
            parts.put("model", bytes([self._number % 256]) * self._here.member.model)
        self._reader.durable(cursor)
        self._writer.keep(3)


class _Sampling:
    """Samples from the replay, and looks whether items are whole."""

    def __init__(self, here: Here, stack: contextlib.ExitStack) -> None:
        self._here = here
        self._replay = stack.enter_context(ReplayClient(here.context, "replay", batch=16))
        self._beat = here.beat("samples")
        self._chance = np.random.default_rng(here.member.index)

    def step(self) -> None:
        try:
            sample = self._replay.sample(0.05)
            if not (sample.arrays["x"] == sample.arrays["id"][:, 2:]).all():
                self._here.wrong("a torn item in a sample")
            self._replay.update(sample.keys, self._chance.random(len(sample.keys)), timeout=0.2)
        except TimedOut:
            return
        self._beat.tick()


class _Verdicts:
    """Takes the evaluator's verdicts and logs them."""

    def __init__(self, here: Here, stack: contextlib.ExitStack) -> None:
        self._reader = stack.enter_context(TrajectoryReader(here.context, "evaluations"))
        self._log = here.log("verdicts")
        self._beat = here.beat("verdicts")

    def step(self) -> None:
        with contextlib.suppress(TimedOut):
            while True:
                batch = self._reader.read(1, timeout=0.0)
                self._log(f"{int(batch['version'][0])} {float(batch['mean'][0, 0])}")
                self._beat.tick()
