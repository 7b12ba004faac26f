"""Names, types and shapes of a message's arrays: agreed once, then checked by hash in every frame."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np

from callsheet.errors import UserError
from callsheet.runtime.link.protocol import Natural, decode

MAX_FIELDS = 4096
MAX_DIMENSIONS = 16
MAX_NAME_LENGTH = 128
ALIGNMENT = 64
"""Bytes. Arrays in a frame start at multiples of a cache line."""
MAX_ITEM_BYTES = 1 << 30
"""Largest item in bytes that a peer may announce; no frame is larger."""
_MAX_CACHED_PLACES = 64 * 1024
"""Total arrays in the layouts a schema caches, whatever counts peers send."""
_KINDS = "biufc?"
_TYPES = {np.dtype(code).str: np.dtype(code) for code in "?bBhHiIlLqQefdgFDG"}
"""The type names a peer may use. NumPy itself accepts many more, such as strings, structures and nested types."""

Shape = tuple[int | None, ...]
"""Lengths of an array's axes; None where the length may vary between frames."""


class _Field(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    name: str
    dtype: str
    shape: list[Natural | None]


_DECODER = msgspec.msgpack.Decoder(list[_Field])


@dataclass(frozen=True)
class Field:
    """One named array."""

    name: str
    dtype: np.dtype[np.generic]
    shape: Shape

    def __post_init__(self) -> None:
        if not 0 < len(self.name) <= MAX_NAME_LENGTH:
            raise UserError(
                f"an array's name has 1 to {MAX_NAME_LENGTH} characters, not {len(self.name)}",
                fix="shorten it",
            )
        if self.dtype.kind not in _KINDS or self.dtype.hasobject:
            raise UserError(
                f"array {self.name!r} has the type {self.dtype}, which cannot travel",
                fix="use booleans, integers or floating-point numbers",
            )
        if len(self.shape) > MAX_DIMENSIONS or any(n is not None and n < 0 for n in self.shape):
            raise UserError(
                f"array {self.name!r} has the shape {self.shape}", fix=f"at most {MAX_DIMENSIONS} axes"
            )

    def __str__(self) -> str:
        axes = ", ".join("any" if n is None else str(n) for n in self.shape)
        return f"{self.name}: {self.dtype.name}[{axes}]"


@dataclass(frozen=True)
class Schema:
    """Named arrays, in order."""

    fields: tuple[Field, ...]
    _layouts: dict[tuple[int, tuple[tuple[int, ...], ...]], FrameLayout] = dataclasses.field(
        default_factory=dict, compare=False, repr=False
    )

    def __post_init__(self) -> None:
        if not 0 < len(self.fields) <= MAX_FIELDS:
            raise UserError(
                f"a schema has 1 to {MAX_FIELDS} arrays, not {len(self.fields)}", fix="join some of them"
            )
        names = [field.name for field in self.fields]
        if len(set(names)) != len(names):
            twice = next(name for name, count in Counter(names).items() if count > 1)
            raise UserError(f"array {twice!r} is named twice", fix="give each array its own name")

    @staticmethod
    def of(arrays: Mapping[str, object], free: Mapping[str, tuple[int, ...]] | None = None) -> Schema:
        """The schema of these arrays; ``free={"obs": (0,)}`` lets the length of axis 0 of `obs` vary."""
        fields = []
        for name, value in arrays.items():
            array = np.asarray(value)
            loose = (free or {}).get(name, ())
            shape = tuple(None if axis in loose else length for axis, length in enumerate(array.shape))
            fields.append(Field(name, array.dtype.newbyteorder("<"), shape))
        return Schema(tuple(fields))

    @staticmethod
    def decode(data: bytes) -> Schema:
        """Decode a peer's schema; `ValueError` if it is invalid or describes items too large for a frame."""
        fields = decode(_DECODER, data, "a schema")
        try:
            schema = Schema(tuple(Field(field.name, _type_of(field), tuple(field.shape)) for field in fields))
        except UserError as error:
            raise ValueError(f"not a schema: {error}") from None
        size = sum(math.prod(n or 1 for n in field.shape) * field.dtype.itemsize for field in schema.fields)
        if size > MAX_ITEM_BYTES:
            raise ValueError(f"items of {size:,} bytes are larger than {MAX_ITEM_BYTES:,}")
        return schema

    @cached_property
    def encoded(self) -> bytes:
        """As it is sent in a hello."""
        fields = [_Field(field.name, field.dtype.str, list(field.shape)) for field in self.fields]
        return msgspec.msgpack.encode(fields)

    @cached_property
    def hash(self) -> int:
        """Equal for equal schemas; part of every frame."""
        return int.from_bytes(hashlib.blake2b(self.encoded, digest_size=8).digest(), "little") >> 1

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The arrays' names."""
        return tuple(field.name for field in self.fields)

    @cached_property
    def fixed(self) -> bool:
        """Whether every length is known."""
        return all(None not in field.shape for field in self.fields)

    @cached_property
    def item_bytes(self) -> int:
        """Bytes of one item without padding; a free length counts as 1."""
        return sum(
            math.prod(1 if n is None else n for n in field.shape) * field.dtype.itemsize
            for field in self.fields
        )

    def layout(self, count: int = 1, shapes: tuple[tuple[int, ...], ...] = ()) -> FrameLayout:
        """Where the arrays of `count` items lie in a frame; pass `shapes` if some lengths are free."""
        key = (count, shapes)
        layout = self._layouts.get(key)
        if layout is None:
            layout = FrameLayout.of(self, count, shapes)
            if len(self._layouts) < min(1024, _MAX_CACHED_PLACES // len(self.fields)):
                self._layouts[key] = layout
        return layout

    def shapes_of(self, arrays: Mapping[str, np.ndarray]) -> tuple[tuple[int, ...], ...]:
        """The `shapes` argument of `layout` for these arrays; empty if every length is fixed."""
        return () if self.fixed else tuple(arrays[name].shape for name in self.names)

    def check(self, arrays: Mapping[str, object]) -> dict[str, np.ndarray]:
        """Return the arrays if they match the schema; otherwise raise a `UserError`."""
        checked = {}
        for field in self.fields:
            if field.name not in arrays:
                raise UserError(f"array {field.name!r} is missing", fix=f"the schema is {self}")
            array = np.asarray(arrays[field.name])
            fits = len(array.shape) == len(field.shape) and all(
                want is None or have == want for have, want in zip(array.shape, field.shape, strict=True)
            )
            if array.dtype != field.dtype or not fits:
                got = Field(field.name, array.dtype, array.shape)
                raise UserError(f"array {got} does not match the schema", fix=f"the schema expects {field}")
            checked[field.name] = array
        if len(arrays) != len(checked):
            extra = sorted(set(arrays) - set(checked))
            raise UserError(f"array {extra[0]!r} is not in the schema", fix=f"the schema is {self}")
        return checked

    def difference(self, other: Schema) -> str:
        """How the other schema differs, for people; empty if it does not."""
        mine, theirs = {f.name: str(f) for f in self.fields}, {f.name: str(f) for f in other.fields}
        parts = [
            f"{text} against {theirs[name]}" for name, text in mine.items() if theirs.get(name, text) != text
        ]
        parts += [f"{text} only here" for name, text in mine.items() if name not in theirs]
        parts += [f"{text} only there" for name, text in theirs.items() if name not in mine]
        if not parts and tuple(mine) != tuple(theirs):
            parts = [f"the order {', '.join(mine)} against {', '.join(theirs)}"]
        return "; ".join(parts)

    def __str__(self) -> str:
        return ", ".join(str(field) for field in self.fields)


def _type_of(field: _Field) -> np.dtype[np.generic]:
    dtype = _TYPES.get(field.dtype)
    if dtype is None:
        raise UserError(
            f"array {field.name[:MAX_NAME_LENGTH]!r} has the type {field.dtype[:MAX_NAME_LENGTH]!r}, which cannot travel",
            fix="use booleans, integers or floating-point numbers",
        )
    return dtype


@dataclass(frozen=True)
class FrameLayout:
    """Where the arrays of a frame lie: each is `[count, *shape]`, aligned, one after the other."""

    schema: Schema
    places: tuple[tuple[str, np.dtype[np.generic], tuple[int, ...], int], ...]
    nbytes: int

    @staticmethod
    def of(schema: Schema, count: int, shapes: tuple[tuple[int, ...], ...]) -> FrameLayout:
        """Compute the offsets; `ValueError` if the shapes do not fit the schema."""
        if count < 0 or (shapes and len(shapes) != len(schema.fields)) or (not shapes and not schema.fixed):
            raise ValueError(f"{count} items with {len(shapes)} shapes do not fit the schema {schema}")
        places, at = [], 0
        for number, field in enumerate(schema.fields):
            shape = shapes[number] if shapes else tuple(n for n in field.shape if n is not None)
            fits = len(shape) == len(field.shape) and all(
                have >= 0 and (want is None or have == want)
                for have, want in zip(shape, field.shape, strict=True)
            )
            if not fits:
                raise ValueError(f"the shape {shape} does not fit {field}")
            places.append((field.name, field.dtype, (count, *shape), at))
            at += -(-math.prod((count, *shape)) * field.dtype.itemsize // ALIGNMENT) * ALIGNMENT
        return FrameLayout(schema, tuple(places), at)

    def views(self, memory: memoryview) -> dict[str, np.ndarray]:
        """The arrays in this memory, without a copy."""
        return {name: np.ndarray(shape, dtype, memory, at) for name, dtype, shape, at in self.places}
