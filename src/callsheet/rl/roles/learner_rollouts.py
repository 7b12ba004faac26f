"""How the learner learns from rollouts that actors send to it."""

from __future__ import annotations

import logging
import re
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callsheet.rl import endpoints
from callsheet.rl.acting.rollouts import axes, schema
from callsheet.rl.algorithms import algorithm
from callsheet.rl.algorithms.learner import Learner
from callsheet.rl.nets.network import resolve, state_size
from callsheet.rl.session import Session
from callsheet.rl.settings import RolloutSettings, Training
from callsheet.rl.spaces import Spaces
from callsheet.runtime import Context, ParameterServer, TrajectoryReader

log = logging.getLogger("callsheet.rl")
Arrays = dict[str, NDArray[Any]]


class RolloutUpdates:
    """Reads batches of rollouts and publishes the policy after each update."""

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
        asynchronous = config if isinstance(config, RolloutSettings) and not self._in_step else None
        self._reader = TrajectoryReader(
            context,
            endpoints.TRAJECTORIES,
            shape,
            axis=axes(list(shape.names)),
            max_policy_lag=asynchronous.max_policy_lag if asynchronous else None,
        )
        self._batches: SynchronousBatches | ArrivalBatches
        if asynchronous:
            self._batches = ArrivalBatches(self._reader, asynchronous.batch)
        else:
            self._batches = SynchronousBatches(self._reader, training.actors)

    def update(self) -> None:
        """One update. In step, actors get the policy from before it and play while it is improved."""
        session, learner = self._session, self._learner
        start = time.monotonic()
        batch, lag = self._batches.read(session.updates)
        read = time.monotonic()
        if self._in_step:
            self._parameters.publish(session.updates + 1, learner.snapshot())
        batch["progress"] = np.array(session.progress)
        metrics = learner.update(batch)
        if not self._in_step:
            self._parameters.publish(session.updates + 1, learner.snapshot())
        session.episodes.add_ended(batch)
        took = time.monotonic() - read
        session.record_update(int(batch["valid"].sum()), metrics, waited=read - start, took=took, lag=lag)

    def close(self) -> None:
        """Disconnect."""
        self._reader.close()


class ArrivalBatches:
    """The next rollouts to arrive, from any actor. `fresh` marks the environments whose rollout is not too old."""

    def __init__(self, reader: TrajectoryReader, count: int) -> None:
        self._reader = reader
        self._count = count

    def read(self, version: int) -> tuple[Arrays, float]:
        """A batch for the learner at this version, and the mean age of its policies."""
        self._reader.version = version
        batch = self._reader.read(self._count)
        arrays = dict(batch.arrays)
        arrays["fresh"] = np.repeat(batch.fresh, arrays["reward"].shape[1] // self._count)
        return arrays, float(batch.lag.mean())


class SynchronousBatches:
    """One rollout of every actor, in the order of their indices, all by the version published last.

    A restarted actor plays that version again. Rollouts of another version, and duplicates, are ignored.
    """

    def __init__(self, reader: TrajectoryReader, actors: int) -> None:
        self._reader = reader
        self._actors = actors
        self._arrays: Arrays = {}

    def read(self, version: int) -> tuple[Arrays, float]:
        """A batch for the learner at this version. Its policy is always one update old."""
        self._reader.version = version
        missing = set(range(self._actors))
        while missing:
            rollout = self._reader.read(1)
            index = _index_of(self._reader.writers[rollout.writers[0]])
            made_with = int(rollout.versions[0])
            if made_with != version or index not in missing:
                log.info("ignored a rollout of actor/%s: version %s, expected %s", index, made_with, version)
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
    """The index of an actor from the name it gave itself; -1 if there is none in it."""
    match = re.fullmatch(r"[^/]*/([0-9]{1,9})(/.*)?", name)
    return int(match[1]) if match else -1
