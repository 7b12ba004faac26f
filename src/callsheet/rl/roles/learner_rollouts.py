"""Learning from rollouts that actors send to the learner itself."""

from __future__ import annotations

import logging
import re
import time
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callsheet.rl.acting.rollouts import axes, schema
from callsheet.rl.algorithms import algorithm
from callsheet.rl.algorithms.learner import Learner
from callsheet.rl.nets.network import resolve, state_size
from callsheet.rl.session import Session
from callsheet.rl.settings import Training
from callsheet.rl.spaces import Spaces
from callsheet.runtime import Context, ParameterServer, TrajectoryReader


class FromRollouts:
    """Batches of rollouts in, a version of the policy out after each."""

    def __init__(
        self,
        context: Context,
        training: Training,
        spaces: Spaces,
        session: Session,
        learner: Learner,
        parameters: ParameterServer,
    ) -> None:
        chosen = algorithm(training.algorithm)
        config = chosen.settings(training)
        self._in_step = chosen.in_step
        self._session, self._learner, self._parameters = session, learner, parameters
        shape = schema(
            spaces,
            config.rollout,
            config.environments,
            state=state_size(resolve(config.network, spaces)),
            values=self._in_step,
        )
        self._reader = TrajectoryReader(
            context,
            "trajectories",
            shape,
            axis=axes(list(shape.names)),
            max_policy_lag=None if self._in_step else getattr(config, "max_policy_lag", None),
        )
        self._source: InStep | AsTheyCome
        if self._in_step:
            self._source = InStep(self._reader, training.actors)
        else:
            self._source = AsTheyCome(self._reader, getattr(config, "batch", 1))

    def learn(self) -> None:
        """One update. In step, actors get the policy before it: they play with that one while it is improved."""
        session, learner = self._session, self._learner
        begun = time.monotonic()
        batch, lag = self._source.read(session.updates)
        here = time.monotonic()
        if self._in_step:
            self._parameters.publish(session.updates + 1, learner.snapshot())
        batch["progress"] = np.array(session.progress)
        told = learner.update(batch)
        if not self._in_step:
            self._parameters.publish(session.updates + 1, learner.snapshot())
        session.episodes.take(batch)
        took = time.monotonic() - here
        session.learned(int(batch["valid"].sum()), told, waited=here - begun, took=took, lag=lag)

    def __enter__(self) -> FromRollouts:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reader.close()


log = logging.getLogger("callsheet.rl")
Arrays = dict[str, NDArray[Any]]


class AsTheyCome:
    """So many rollouts of whoever has played; `fresh` tells which environments' are not too old."""

    def __init__(self, reader: TrajectoryReader, count: int) -> None:
        self._reader = reader
        self._count = count

    def read(self, version: int) -> tuple[Arrays, float]:
        """A batch for the learner of this version, and how much older its policies are on average."""
        self._reader.version = version
        batch = self._reader.read(self._count)
        arrays = dict(batch.arrays)
        arrays["fresh"] = np.repeat(batch.fresh, arrays["reward"].shape[1] // self._count)
        return arrays, float(batch.lag.mean())


class InStep:
    """One rollout of every actor, played with the version that was published last.

    An actor that is started again plays once more with it; what is of another version, or comes twice, does not count.
    """

    def __init__(self, reader: TrajectoryReader, actors: int) -> None:
        self._reader = reader
        self._actors = actors
        self._arrays: Arrays = {}

    def read(self, version: int) -> tuple[Arrays, float]:
        """A batch for the learner of this version; its policy is always one update older."""
        self._reader.version = version
        missing = set(range(self._actors))
        while missing:
            rollout = self._reader.read(1)
            index = _index_of(self._reader.writers[rollout.writers[0]])
            made = int(rollout.versions[0])
            if made != version or index not in missing:
                log.info("a rollout of actor/%s does not count: version %s, wanted %s", index, made, version)
                continue
            missing.remove(index)
            self._place(rollout.arrays, index)
        return dict(self._arrays), min(1.0, version)

    def _place(self, arrays: Arrays, index: int) -> None:
        for name, array in arrays.items():
            axis = 0 if name == "state" else 1
            width = array.shape[axis]
            if name not in self._arrays:
                shape = list(array.shape)
                shape[axis] *= self._actors
                self._arrays[name] = np.empty(shape, array.dtype)
            where = slice(index * width, (index + 1) * width)
            whole = self._arrays[name]
            (whole[where] if axis == 0 else whole[:, where])[...] = array


def _index_of(name: str) -> int:
    """Which actor a writer is; -1 when its name does not say, as a peer can call itself what it likes."""
    found = re.fullmatch(r"[^/]*/([0-9]{1,9})(/.*)?", name)
    return int(found[1]) if found else -1
