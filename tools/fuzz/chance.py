"""Changes to input that know its structure: what a parser did not expect, where it did not expect it."""

from __future__ import annotations

import copy
import random
from typing import Any, Final

import msgspec

INTEGERS: Final = (
    0, 1, -1, 2, 7, 63, 64, 65, 127, 128, 255, 256, 1023, 1024, 4096, 65535, 65536, (1 << 20) + 1, (1 << 31) - 1, 1 << 31,
    -(1 << 31), (1 << 32) - 1, 1 << 32, 1 << 40, (1 << 62) - 1, 1 << 62, (1 << 63) - 1, -(1 << 63), 1 << 63, (1 << 64) - 1,
)  # fmt: skip
FLOATS: Final = (0.0, -0.0, 1.0, -1.5, 1e308, -1e308, 5e-324, float("inf"), float("-inf"), float("nan"))
TEXTS: Final = (
    "", " ", "\0", "a" * 300, "é" * 100, "\ud7ff", "..", "../../etc/passwd", "/", "a/b/c", "%s%n", "{index}", "$(x)", "null",
    "true", "1e999", "-0", "0x10", "<f4", "(3,)f4", "f4,f4", "O", "V8", "<U9", "replay", "write", "sample", "trajectories",
    "parameters", "policy", "\u202e", "🦊", "\n", "a\r\nb: c", "!!python/object:os.system x", "*a", "&a [*a]", "<<",
)  # fmt: skip


class Chance(random.Random):
    """A source of cases: equal for equal seeds."""

    def integer(self) -> int:
        """One that somebody may have forgotten."""
        if self.random() < 0.5:
            return self.choice(INTEGERS)
        return self.choice(INTEGERS[:24]) + self.randint(-3, 3)

    def bytes_(self, most: int = 64) -> bytes:
        """Any bytes."""
        return self.randbytes(self.choice((0, 1, 2, 7, 8, 16, 31, 32, self.randint(0, most))))

    def leaf(self) -> Any:
        """Something without an inside."""
        return self.choice(
            (self.integer, lambda: self.choice(FLOATS), lambda: self.choice(TEXTS), self.bytes_)
        )() if self.random() < 0.8 else self.choice((None, True, False, [], {}))  # fmt: skip

    def value(self, depth: int = 3) -> Any:
        """Anything."""
        if depth == 0 or self.random() < 0.6:
            return self.leaf()
        if self.random() < 0.5:
            return [self.value(depth - 1) for _ in range(self.randint(0, 5))]
        return {self.choice(TEXTS): self.value(depth - 1) for _ in range(self.randint(0, 4))}

    def changed(self, value: Any, times: int | None = None) -> Any:
        """The value, with a few changes anywhere inside."""
        value = copy.deepcopy(value)
        for _ in range(self.choice((1, 1, 1, 2, 3)) if times is None else times):
            value = self._changed(value)
        return value

    def _changed(self, value: Any) -> Any:
        if isinstance(value, dict) and value and self.random() < 0.85:
            return self._fields(value)
        if isinstance(value, list) and value and self.random() < 0.85:
            return self._items(value)
        if isinstance(value, bool) or value is None:
            return self.value()
        if isinstance(value, int) and self.random() < 0.8:
            return self.choice((self.integer(), value + self.randint(-2, 2), -value, float(value)))
        if isinstance(value, bytes) and self.random() < 0.8:
            return self.bytes_changed(value)
        if isinstance(value, str) and self.random() < 0.8:
            return self.choice(
                (self.choice(TEXTS), value[:-1], value + "x", value * self.choice((2, 50)), value.upper())
            )
        return self.value()

    def _fields(self, value: dict[Any, Any]) -> dict[Any, Any]:
        key = self.choice(list(value))
        way = self.random()
        if way < 0.6:
            value[key] = self._changed(value[key])
        elif way < 0.75:
            del value[key]
        elif way < 0.9:
            value[self.choice((*TEXTS, f"{key}x", self.choice(list(value))))] = self.value()
        else:
            value[key] = {key: value[key]} if self.random() < 0.5 else [value[key]]
        return value

    def _items(self, value: list[Any]) -> list[Any]:
        at = self.randrange(len(value))
        way = self.random()
        if way < 0.65:
            value[at] = self._changed(value[at])
        elif way < 0.75:
            del value[at]
        elif way < 0.85:
            value.insert(at, self.value() if self.random() < 0.5 else copy.deepcopy(value[at]))
        elif way < 0.95:
            value[at] = [value[at]]
        else:
            value.extend(value * self.choice((1, 20)))
        return value

    def bytes_changed(self, data: bytes) -> bytes:
        """Bytes, with a few changes that know nothing."""
        found = bytearray(data)
        for _ in range(self.choice((1, 1, 2, 5))):
            at = self.randrange(len(found) + 1)
            way = self.randrange(7)
            if way == 0 and found:
                found[at % len(found)] = self.randrange(256)
            elif way == 1:
                del found[at:]
            elif way == 2:
                del found[at : at + self.randint(1, 8)]
            elif way == 3:
                found[at:at] = self.bytes_()
            elif way == 4:
                found[at:at] = found[at : at + self.randint(1, 40)]
            elif way == 5 and found:
                found[at % len(found)] ^= 1 << self.randrange(8)
            else:
                found[at : at + 4] = self.choice(
                    (b"\xff" * 4, b"\0" * 4, b"\x7f\xff\xff\xff", b"\xdd\xff\xff\xff")
                )
        return bytes(found)

    def deep(self, opening: bytes, closing: bytes = b"", most: int = 60_000) -> bytes:
        """The same thing within itself, again and again."""
        depth = self.choice((10, 64, 65, 500, 999, 1000, 5000, most // (len(opening) + len(closing))))
        return opening * depth + closing * depth

    def packed(self, value: Any) -> bytes:
        """The value as msgpack, changed: sometimes not msgpack any more."""
        way = self.random()
        if way < 0.03:
            return self.deep(self.choice((b"\x91", b"\x81\xa1x", b"\xdd\0\0\0\1", b"\x92\1")))
        if way < 0.06 and isinstance(value, list) and value:
            value = copy.deepcopy(value)
            value[self.randrange(len(value))] = msgspec.Raw(self.deep(b"\x91") + b"\xc0")
            return msgspec.msgpack.encode(value)
        try:
            found = msgspec.msgpack.encode(self.changed(value))
        except OverflowError:  # a number that msgpack cannot say at all
            found = msgspec.msgpack.encode(value)
        return self.bytes_changed(found) if self.random() < 0.25 else found
