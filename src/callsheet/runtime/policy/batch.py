"""A batch of requests in preallocated arrays: observations are copied in, answers are sliced out."""

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
    """One request in a batch, and its rows."""

    frame: Frame
    lane: Lane
    number: int
    first: int
    count: int


class RequestBatch:
    """Requests that are answered by one call."""

    def __init__(self, limit: int, observations: Schema, slots: RecurrentStates | None) -> None:
        self.limit = limit
        self.rows = 0
        self.begun = 0.0
        """When its first request arrived."""
        self.requests: list[Request] = []
        self._observations = _arrays(limit, observations)
        self._targets = list(self._observations.items())
        self._state_store = slots
        self._states = _arrays(limit, slots.schema) if slots else {}
        self._index = np.zeros(limit, np.int64)
        self._reset = np.zeros(limit, np.bool_)
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
        """The observations, `[rows, ...]`."""
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
        """Start the next batch."""
        if self._any_reset:
            self._reset[:] = False
            self._any_reset = False
        for request in self.requests:
            request.lane.busy = False
        self.requests.clear()
        self.rows = 0


def _arrays(count: int, schema: Schema) -> dict[str, np.ndarray]:
    return {
        field.name: np.zeros((count, *(n or 0 for n in field.shape)), field.dtype) for field in schema.fields
    }


def check_output(output: object, schema: Schema, rows: int, what: str) -> dict[str, np.ndarray]:
    """Check what a policy returned. Types may be narrower or wider, but of the same kind."""
    if not isinstance(output, Mapping):
        raise UserError(
            f"the policy returned {type(output).__name__} for its {what}",
            fix=f"return a dictionary of arrays: {schema}",
        )
    arrays = {}
    for field in schema.fields:
        if field.name not in output:
            raise UserError(
                f"the policy's {what} lack {field.name!r}", fix=f"return a dictionary of arrays: {schema}"
            )
        array = np.asarray(output[field.name])
        want = (rows, *field.shape)
        if array.shape != want or not np.can_cast(array.dtype, field.dtype, "same_kind"):
            raise UserError(
                f"the policy returned {field.name!r} as {array.dtype.name}{list(array.shape)}",
                fix=f"{what} are {field}; for {rows} environments return {field.dtype.name}{list(want)}",
            )
        arrays[field.name] = array
    if len(output) > len(arrays):
        extra = sorted(str(name) for name in set(output) - set(arrays))
        raise UserError(
            f"the policy returned {extra[0]!r}, which is not in the schema of its {what}",
            fix=f"the schema is {schema}",
        )
    return arrays
