"""A batch of observations in arrays that are made once: requests are copied in, answers are cut out."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from callsheet.errors import UserError
from callsheet.runtime.link.frame import Frame
from callsheet.runtime.policy.client_states import Lane, RecurrentStates
from callsheet.runtime.schema import Schema


@dataclass(slots=True)
class Request:
    """One request in a batch: which rows are its environments'."""

    frame: Frame
    lane: Lane
    number: int
    first: int
    count: int


class RequestBatch:
    """Requests that are answered by one call."""

    def __init__(self, most: int, observations: Schema, slots: RecurrentStates | None) -> None:
        self.most = most
        self.rows = 0
        self.begun = 0.0
        """When its first request came."""
        self.requests: list[Request] = []
        self._observations = _arrays(most, observations)
        self._targets = list(self._observations.items())
        self._state_store = slots
        self._states = _arrays(most, slots.schema) if slots else {}
        self._index = np.zeros(most, np.int64)
        self._reset = np.zeros(most, np.bool_)
        self._any_reset = False

    def add(self, request: Request, arrays: dict[str, np.ndarray], reset: bytes) -> None:
        """Copy a request's observations."""
        first, last = request.first, request.first + request.count
        if not self.requests:
            self.begun = time.monotonic()
        for name, target in self._targets:
            target[first:last] = arrays[name]
        if request.lane.slots is not None:
            self._index[first:last] = request.lane.slots
            if reset:
                self._reset[first:last] = np.frombuffer(reset, np.uint8) != 0
                self._any_reset = True
        self.rows = last
        self.requests.append(request)

    @property
    def observations(self) -> dict[str, np.ndarray]:
        """What was asked about, `[rows, ...]`."""
        return {name: array[: self.rows] for name, array in self._targets}

    def states(self) -> dict[str, np.ndarray]:
        """The states of the environments, `[rows, ...]`."""
        output = {name: array[: self.rows] for name, array in self._states.items()}
        if self._state_store is not None:
            self._state_store.gather(
                self.slots, output, self._reset[: self.rows] if self._any_reset else None
            )
        return output

    @property
    def slots(self) -> np.ndarray:
        """The slots of the environments."""
        return self._index[: self.rows]

    def clear(self) -> None:
        """Begin the next one."""
        if self._any_reset:
            self._reset[:] = False
            self._any_reset = False
        for request in self.requests:
            request.lane.busy = False
        self.requests.clear()
        self.rows = 0


def _arrays(count: int, schema: Schema) -> dict[str, np.ndarray]:
    return {one.name: np.zeros((count, *(n or 0 for n in one.shape)), one.dtype) for one in schema.fields}


def check_output(output: object, schema: Schema, rows: int, what: str) -> dict[str, np.ndarray]:
    """What a policy returned, when it is what it should be; the types may be narrower or wider of the same kind."""
    if not isinstance(output, Mapping):
        raise UserError(
            f"the policy returned {type(output).__name__} for its {what}",
            fix=f"return a dictionary of arrays: {schema}",
        )
    arrays = {}
    for one in schema.fields:
        if one.name not in output:
            raise UserError(
                f"the policy's {what} have no {one.name!r}", fix=f"return a dictionary of arrays: {schema}"
            )
        array = np.asarray(output[one.name])
        want = (rows, *one.shape)
        if array.shape != want or not np.can_cast(array.dtype, one.dtype, "same_kind"):
            raise UserError(
                f"the policy returned {one.name!r} as {array.dtype.name}{list(array.shape)}",
                fix=f"{what} are {one}, for {rows} environments: {one.dtype.name}{list(want)}",
            )
        arrays[one.name] = array
    if len(output) > len(arrays):
        extra = sorted(str(name) for name in set(output) - set(arrays))
        raise UserError(
            f"the policy returned {extra[0]!r}, which its {what} do not have", fix=f"the schema is {schema}"
        )
    return arrays
