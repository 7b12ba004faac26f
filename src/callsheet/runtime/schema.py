"""What the arrays of a message are called and look like: agreed once, then checked by a hash in every frame."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import msgspec
import numpy as np

from callsheet.errors import UserError
from callsheet.runtime.link.protocol import Natural, decode

MOST_FIELDS = 4096
MOST_DIMENSIONS = 16
LONGEST_NAME = 128
ALIGNMENT = 64
"""Bytes. Arrays in a frame begin at multiples of a cache line."""
LARGEST_ITEM = 1 << 30
"""Bytes of one item that a peer may announce: no frame is larger."""
_MOST_PLACES = 64 * 1024
"""Of arrays in the layouts that a schema remembers, whatever counts a peer may say."""
_KINDS = "biufc?"
_TYPES = {np.dtype(code).str: np.dtype(code) for code in "?bBhHiIlLqQefdgFDG"}
"""What a peer may call a type: NumPy itself understands much more, such as text, structures and types within types."""

Shape = tuple[int | None, ...]
"""Lengths of an array's axes; None where the length may differ from frame to frame."""


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
        if not 0 < len(self.name) <= LONGEST_NAME:
            raise UserError(
                f"an array's name has 1 to {LONGEST_NAME} characters, not {len(self.name)}", fix="shorten it"
            )
        if self.dtype.kind not in _KINDS or self.dtype.hasobject:
            raise UserError(
                f"array {self.name!r} has the type {self.dtype}, which cannot travel",
                fix="use booleans, integers or floating-point numbers",
            )
        if len(self.shape) > MOST_DIMENSIONS or any(n is not None and n < 0 for n in self.shape):
            raise UserError(
                f"array {self.name!r} has the shape {self.shape}", fix=f"at most {MOST_DIMENSIONS} axes"
            )

    def __str__(self) -> str:
        axes = ", ".join("any" if n is None else str(n) for n in self.shape)
        return f"{self.name}: {self.dtype.name}[{axes}]"


@dataclass(frozen=True)
class Schema:
    """Named arrays in their order."""

    fields: tuple[Field, ...]
    _layouts: dict[tuple[int, tuple[tuple[int, ...], ...]], Layout] = field(
        default_factory=dict, compare=False, repr=False
    )

    def __post_init__(self) -> None:
        if not 0 < len(self.fields) <= MOST_FIELDS:
            raise UserError(
                f"a schema has 1 to {MOST_FIELDS} arrays, not {len(self.fields)}", fix="join some of them"
            )
        names = [one.name for one in self.fields]
        if len(set(names)) != len(names):
            twice = next(name for name, count in Counter(names).items() if count > 1)
            raise UserError(f"array {twice!r} is named twice", fix="give each array its own name")

    @staticmethod
    def of(arrays: Mapping[str, object], free: Mapping[str, tuple[int, ...]] | None = None) -> Schema:
        """The schema of these arrays; ``free={"obs": (0,)}`` lets the length of axis 0 of `obs` differ."""
        fields = []
        for name, value in arrays.items():
            array = np.asarray(value)
            loose = (free or {}).get(name, ())
            shape = tuple(None if axis in loose else length for axis, length in enumerate(array.shape))
            fields.append(Field(name, array.dtype.newbyteorder("<"), shape))
        return Schema(tuple(fields))

    @staticmethod
    def decode(data: bytes) -> Schema:
        """A peer's schema; what it may not say is a `ValueError`, and so are items that no frame could hold."""
        found = decode(_DECODER, data, "a schema")
        try:
            schema = Schema(tuple(Field(one.name, _type_of(one), tuple(one.shape)) for one in found))
        except UserError as error:
            raise ValueError(f"not a schema: {error}") from None
        size = sum(math.prod(n or 1 for n in one.shape) * one.dtype.itemsize for one in schema.fields)
        if size > LARGEST_ITEM:
            raise ValueError(f"items of {size:,} bytes are larger than {LARGEST_ITEM:,}")
        return schema

    @cached_property
    def encoded(self) -> bytes:
        """As it is sent in a hello."""
        fields = [_Field(one.name, one.dtype.str, list(one.shape)) for one in self.fields]
        return msgspec.msgpack.encode(fields)

    @cached_property
    def hash(self) -> int:
        """Equal for equal schemas; stands in every frame."""
        return int.from_bytes(hashlib.blake2b(self.encoded, digest_size=8).digest(), "little") >> 1

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The arrays' names."""
        return tuple(one.name for one in self.fields)

    @cached_property
    def fixed(self) -> bool:
        """Whether every length is known."""
        return all(None not in one.shape for one in self.fields)

    @cached_property
    def item_bytes(self) -> int:
        """Bytes of one item without padding; a free length counts as 1."""
        return sum(
            math.prod(1 if n is None else n for n in one.shape) * one.dtype.itemsize for one in self.fields
        )

    def layout(self, count: int = 1, shapes: tuple[tuple[int, ...], ...] = ()) -> Layout:
        """Where the arrays of `count` items lie in a frame; `shapes` when some lengths are free."""
        key = (count, shapes)
        found = self._layouts.get(key)
        if found is None:
            found = Layout.of(self, count, shapes)
            if len(self._layouts) < min(1024, _MOST_PLACES // len(self.fields)):
                self._layouts[key] = found
        return found

    def shapes_of(self, arrays: Mapping[str, np.ndarray]) -> tuple[tuple[int, ...], ...]:
        """What `layout` wants to know of these arrays: nothing when every length is fixed."""
        return () if self.fixed else tuple(arrays[name].shape for name in self.names)

    def check(self, arrays: Mapping[str, object]) -> dict[str, np.ndarray]:
        """The arrays, when they are those of the schema; else a clear refusal."""
        found = {}
        for one in self.fields:
            if one.name not in arrays:
                raise UserError(f"array {one.name!r} is missing", fix=f"the schema is {self}")
            array = np.asarray(arrays[one.name])
            fits = len(array.shape) == len(one.shape) and all(
                want is None or have == want for have, want in zip(array.shape, one.shape, strict=True)
            )
            if array.dtype != one.dtype or not fits:
                got = Field(one.name, array.dtype, array.shape)
                raise UserError(f"array {got} is not as agreed", fix=f"the schema wants {one}")
            found[one.name] = array
        if len(arrays) != len(found):
            extra = sorted(set(arrays) - set(found))
            raise UserError(f"array {extra[0]!r} is not in the schema", fix=f"the schema is {self}")
        return found

    def difference(self, other: Schema) -> str:
        """How the other one differs, in words: empty when it does not."""
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
        return ", ".join(str(one) for one in self.fields)


def _type_of(one: _Field) -> np.dtype[np.generic]:
    found = _TYPES.get(one.dtype)
    if found is None:
        raise UserError(
            f"array {one.name[:LONGEST_NAME]!r} has the type {one.dtype[:LONGEST_NAME]!r}, which cannot travel",
            fix="use booleans, integers or floating-point numbers",
        )
    return found


@dataclass(frozen=True)
class Layout:
    """Places of the arrays of a frame: each is `[count, *shape]`, aligned, one after the other."""

    schema: Schema
    places: tuple[tuple[str, np.dtype[np.generic], tuple[int, ...], int], ...]
    nbytes: int

    @staticmethod
    def of(schema: Schema, count: int, shapes: tuple[tuple[int, ...], ...]) -> Layout:
        """Work the places out; shapes that do not fit the schema are a `ValueError`."""
        if count < 0 or (shapes and len(shapes) != len(schema.fields)) or (not shapes and not schema.fixed):
            raise ValueError(f"{count} items with {len(shapes)} shapes do not fit the schema {schema}")
        places, at = [], 0
        for number, one in enumerate(schema.fields):
            shape = shapes[number] if shapes else tuple(n for n in one.shape if n is not None)
            fits = len(shape) == len(one.shape) and all(
                have >= 0 and (want is None or have == want)
                for have, want in zip(shape, one.shape, strict=True)
            )
            if not fits:
                raise ValueError(f"the shape {shape} does not fit {one}")
            places.append((one.name, one.dtype, (count, *shape), at))
            at += -(-math.prod((count, *shape)) * one.dtype.itemsize // ALIGNMENT) * ALIGNMENT
        return Layout(schema, tuple(places), at)

    def views(self, memory: memoryview) -> dict[str, np.ndarray]:
        """The arrays in this memory, without a copy."""
        return {name: np.ndarray(shape, dtype, memory, at) for name, dtype, shape, at in self.places}
