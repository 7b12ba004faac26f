"""Policies without PyTorch: an actor runs a small network in a dozen microseconds and imports only NumPy.

Activations are columns, [units, batch], above a row of ones. A layer is then one matrix product of weights with a bias
column, written straight into the next layer's input: no bias to add, nothing to allocate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from callsheet.errors import UserError
from callsheet.rl.nets import sampling
from callsheet.rl.nets.network import Network, resolve
from callsheet.rl.nets.normalize import CLIP, scale
from callsheet.rl.nets.parameters import ParameterLayout, Snapshot, check_snapshot
from callsheet.rl.nets.sampling import Actions, ActionScaling, CategoricalSampler, Floats, Masks
from callsheet.rl.spaces import Continuous, Spaces

Observations = Mapping[str, NDArray[np.generic]]

_ZERO = np.zeros((), np.float32)


class NumpyPolicy:
    """A policy of fully connected layers. `load` a snapshot, then `act`."""

    state_size = 0

    def __init__(self, spaces: Spaces, network: Network) -> None:
        self.network = resolve(network, spaces)
        self.layout = ParameterLayout(self.network, spaces)
        self._inputs = _Inputs(self.layout, spaces)
        if self.layout.inputs.images or self.network.lstm:
            raise UserError(
                "images and LSTMs need PyTorch, but this policy runs in NumPy",
                fix="install PyTorch where this policy runs: pip install 'callsheet[torch]'",
            )
        self._scaling = ActionScaling.of(spaces.action) if isinstance(spaces.action, Continuous) else None
        self._mlps = {part: _MLP(self.layout, part, heads) for part, heads in self._parts().items()}
        self._main = next(iter(self._mlps.values()))
        self._value = self._mlps.get("value")
        self._log_std: Floats | None = None
        self._samplers: dict[int, CategoricalSampler] = {}

    def load(self, snapshot: Snapshot) -> None:
        """Copy parameters and statistics. If a separate value network is missing, there are no values."""
        parts = [part for part in self._mlps if part != "value" or "value.head.weight" in snapshot]
        names = {name for part in parts for name in self._mlps[part].names}
        if self._scaling is not None and self.network.head == "actor-critic":
            names.add("policy.log_std")
        check_snapshot(snapshot, (one for one in self.layout.parameters if one.name in names))
        for part in parts:
            self._mlps[part].load(snapshot)
        self._value = self._mlps["value"] if "value" in parts else None
        if "policy.log_std" in names:
            self._log_std = np.array(snapshot["policy.log_std"], np.float32)
        self._inputs.load(snapshot)

    def act(
        self,
        obs: Observations,
        rng: np.random.Generator,
        *,
        greedy: bool = False,
        masks: Masks | None = None,
        epsilon: float | Floats = 0.0,
        values: bool = True,
        state: Floats | None = None,
        first: NDArray[np.generic] | None = None,
    ) -> Actions:
        """Actions for observations [B, ...].

        `values=False` skips a separate value network; `epsilon` is the share of random actions with a "q" head, one number
        or [B]; `state` and `first` are for recurrent policies, which this is not."""
        columns = self._inputs.columns(obs)
        batch = columns.shape[1]
        out = self._main.run(columns)
        if self.network.head == "q":
            action, best, own = sampling.epsilon_greedy(
                self._q(out), epsilon, rng, greedy=greedy, masks=masks
            )
            return Actions(action, None, best, None, own)
        value: Floats | None = None
        if self._scaling is not None and self.network.head == "soft-actor-critic":
            drawn, logp = sampling.squashed(out, self._scaling, rng, greedy=greedy)
            return Actions(drawn, logp, None)
        if self.network.shared:
            value, out = out[-1].copy(), out[:-1]
        elif values and self._value is not None:
            value = self._value.run(columns)[0].copy()
        if self._scaling is not None and self._log_std is not None:
            drawn, logp = sampling.gaussian(out, self._log_std, self._scaling, rng, greedy=greedy)
            return Actions(drawn, logp, value)
        sampler = self._samplers.get(batch)
        if sampler is None:
            sampler = self._samplers[batch] = CategoricalSampler(len(out), batch)
        chosen, logp = sampler.sample(out, rng, greedy=greedy, masks=masks)
        return Actions(chosen, logp, value)

    def q(self, obs: Observations) -> Floats:
        """The value of each action, [B, n], with a "q" head."""
        return np.array(self._q(self._main.run(self._inputs.columns(obs))).T, order="C")

    def _q(self, out: Floats) -> Floats:
        if not self.network.dueling:
            return out
        advantages, value = out[:-1], out[-1]
        # Advantages are 0 on average.
        value -= advantages.mean(axis=0)
        advantages += value
        return advantages

    def _parts(self) -> dict[str, tuple[str, ...]]:
        """The parts of the network to compute, with the heads of each."""
        if self.network.head == "q":
            return {"torso": ("q.advantage", "q.value") if self.network.dueling else ("q.head",)}
        if self.network.head == "soft-actor-critic":
            return {"policy": ("policy.head",)}
        if self.network.shared:
            return {"torso": ("policy.head", "value.head")}
        return {"policy": ("policy.head",), "value": ("value.head",)}


class _InputRows(NamedTuple):
    """The rows of one observation."""

    key: str
    shape: tuple[int, int] | None
    """[B, size], if it must be reshaped."""
    target: Floats
    """[B, size], a view of the rows."""
    rows: Floats
    factor: np.float32 | None
    mean: Floats | None
    inverse: Floats | None


class _Inputs:
    """All observations as one matrix of columns, normalized, above a row of ones."""

    def __init__(self, layout: ParameterLayout, spaces: Spaces) -> None:
        self._vectors = layout.inputs.vectors
        self._flat = {key for key, array in spaces.observations.items() if len(array.shape) == 1}
        self._width = layout.inputs.width
        self._scales: dict[str, tuple[Floats, Floats] | None] = {}
        self._buffers: dict[int, tuple[Floats, list[_InputRows]]] = {}

    def load(self, snapshot: Snapshot) -> None:
        self._buffers.clear()
        for vector in self._vectors:
            self._scales[vector.key] = scale(snapshot, vector.key) if vector.normal else None

    def columns(self, obs: Observations) -> Floats:
        batch = len(obs[self._vectors[0].key])
        plan = self._buffers.get(batch)
        if plan is None:
            plan = self._buffers[batch] = self._prepare(batch)
        for key, shape, target, rows, factor, mean, inverse in plan[1]:
            np.copyto(target, obs[key] if shape is None else obs[key].reshape(shape), casting="unsafe")
            if factor is not None:
                np.multiply(rows, factor, out=rows)
            if mean is not None and inverse is not None:
                np.subtract(rows, mean, out=rows)
                np.multiply(rows, inverse, out=rows)
                np.clip(rows, -CLIP, CLIP, out=rows)
        return plan[0]

    def _prepare(self, batch: int) -> tuple[Floats, list[_InputRows]]:
        columns = np.ones((self._width + 1, batch), np.float32)
        plan = []
        start = 0
        for key, size, factor, _ in self._vectors:
            rows = columns[start : start + size]
            shape = None if key in self._flat else (batch, size)
            scales = self._scales.get(key)
            mean, inverse = (None, None) if scales is None else (scales[0][:, None], scales[1][:, None])
            whole = None if factor == 1.0 else np.float32(factor)
            plan.append(_InputRows(key, shape, rows.T, rows, whole, mean, inverse))
            start += size
        return columns, plan


class _MLP:
    """Hidden layers, followed by heads side by side."""

    def __init__(self, layout: ParameterLayout, part: str, heads: tuple[str, ...]) -> None:
        shapes = {one.name: one.shape for one in layout.parameters}
        self._hidden = [
            name.removesuffix(".weight")
            for name in shapes
            if name.startswith(f"{part}.mlp.") and name.endswith(".weight")
        ]
        self._heads = heads
        self.names = [f"{name}.{what}" for name in (*self._hidden, *heads) for what in ("weight", "bias")]
        groups = [*((name,) for name in self._hidden), heads]
        self._matrices = [
            np.empty(
                (
                    sum(shapes[f"{name}.weight"][0] for name in group),
                    shapes[f"{group[0]}.weight"][1] + 1,
                ),
                np.float32,
            )
            for group in groups
        ]
        self._groups = groups
        self._tanh = layout.network.activation == "tanh"
        self._buffers: dict[int, list[tuple[Floats, Floats, Floats]]] = {}

    def load(self, snapshot: Snapshot) -> None:
        for group, matrix in zip(self._groups, self._matrices, strict=True):
            start = 0
            for name in group:
                weight = snapshot[f"{name}.weight"]
                rows = matrix[start : start + len(weight)]
                rows[:, :-1] = weight
                rows[:, -1] = snapshot[f"{name}.bias"]
                start += len(weight)

    def run(self, columns: Floats) -> Floats:
        """The heads' outputs, in a buffer that the next call reuses."""
        layers = self._buffers.get(columns.shape[1])
        if layers is None:
            layers = self._buffers[columns.shape[1]] = self._prepare(columns.shape[1])
        for matrix, rows, padded in layers[:-1]:
            np.dot(matrix, columns, out=rows)
            if self._tanh:
                np.tanh(rows, out=rows)
            else:
                np.maximum(rows, _ZERO, out=rows)
            columns = padded
        matrix, rows, _ = layers[-1]
        return np.dot(matrix, columns, out=rows)

    def _prepare(self, batch: int) -> list[tuple[Floats, Floats, Floats]]:
        """For each layer its matrix, its output rows, and the same with the row of ones: the next layer's input."""
        prepared = []
        for matrix in self._matrices:
            padded = np.ones((len(matrix) + 1, batch), np.float32)
            prepared.append((matrix, padded[:-1], padded))
        return prepared
