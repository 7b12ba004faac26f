"""TensorBoard's event files, encoded here so that no library has to be imported.

A record is a length, its checksum, an ``Event`` in protobuf encoding, and its checksum. Only scalars and histograms are
supported.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Mapping
from typing import Final, Protocol

from callsheet.metrics.instruments import Distribution, Number

MAX_FILE_BYTES: Final = 256 * 1024 * 1024
"""Beyond this, writes fail and the exporter logs it."""
_POLYNOMIAL = 0x82F63B78
_MAX_DOUBLE = 1.7976931348623157e308


class _Output(Protocol):
    def write(self, data: bytes) -> None: ...
    def close(self) -> None: ...


def file_name(number: int = 0) -> str:
    """A name that TensorBoard recognizes and that sorts by time."""
    return f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.{number}"


class EventFile:
    """An event file in a folder, created with the first event."""

    def __init__(self, folder: str, *, limit: int = MAX_FILE_BYTES) -> None:
        self.path = os.path.join(folder, file_name())
        self._limit = limit
        self._fd = -1
        self._size = 0

    def write(self, data: bytes) -> None:
        """Append whole records, or raise OSError."""
        if self._size + len(data) > self._limit:
            raise OSError(f"{self.path} has reached its limit of {self._limit} bytes")
        if self._fd < 0:
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
            self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            if os.write(self._fd, HEAD) < len(HEAD):
                raise OSError(f"cannot write to {self.path}")
            self._size = len(HEAD)
        try:
            written = 0
            while written < len(data):
                written += os.write(self._fd, data[written:])
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._size)
                os.lseek(self._fd, self._size, os.SEEK_SET)
            raise
        self._size += len(data)

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class EventWriter:
    """Writes scalars and histograms, from any thread."""

    def __init__(self, output: _Output) -> None:
        self._output = output
        self._lock = threading.Lock()

    @staticmethod
    def in_folder(folder: str) -> EventWriter:
        """A new file in TensorBoard's log folder."""
        return EventWriter(EventFile(folder))

    def write(
        self, step: int, values: Mapping[str, Number | Distribution], wall_time: float | None = None
    ) -> None:
        """Write one event with values by tag."""
        summary = b"".join(_message(1, _value(tag, value)) for tag, value in values.items())
        event = _double(1, time.time() if wall_time is None else wall_time) + _integer(2, step)
        with self._lock:
            self._output.write(record(event + _message(5, summary)))

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._output.close()


def record(data: bytes) -> bytes:
    """An event as a record."""
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", _masked(length)) + data + struct.pack("<I", _masked(data))


def _value(tag: str, value: Number | Distribution) -> bytes:
    name = _message(1, tag.encode())
    if isinstance(value, Distribution):
        return name + _message(5, _histogram(value))
    return name + bytes((2 << 3 | 5,)) + struct.pack("<f", _single(value))


def _single(value: Number) -> float:
    """The number, limited to single precision."""
    return max(-3.4028234663852886e38, min(3.4028234663852886e38, float(value)))


def _histogram(value: Distribution) -> bytes:
    """Extremes and sum of squares are estimated from the buckets."""
    limits = (*value.bounds, _MAX_DOUBLE)
    filled = [place for place, count in enumerate(value.counts) if count]
    low = high = squares = 0.0
    if filled:
        low = value.bounds[filled[0] - 1] if filled[0] else min(0.0, value.bounds[0])
        high = value.bounds[min(filled[-1], len(value.bounds) - 1)]
        squares = sum(value.counts[p] * value.bounds[min(p, len(value.bounds) - 1)] ** 2 for p in filled)
    # TensorBoard takes a bucket's left edge from the previous one.
    first, last = (max(0, filled[0] - 1), filled[-1] + 1) if filled else (0, 1)
    kept = slice(first, last)
    return (
        _double(1, low)
        + _double(2, high)
        + _double(3, value.count)
        + _double(4, value.total)
        + _double(5, squares)
        + _doubles(6, limits[kept])
        + _doubles(7, value.counts[kept])
    )


def _double(field: int, value: float) -> bytes:
    return bytes((field << 3 | 1,)) + struct.pack("<d", value)


def _doubles(field: int, values: tuple[float, ...]) -> bytes:
    return _message(field, struct.pack(f"<{len(values)}d", *values))


def _integer(field: int, value: int) -> bytes:
    return bytes((field << 3,)) + _varint(value & 0xFFFF_FFFF_FFFF_FFFF)


def _message(field: int, data: bytes) -> bytes:
    return bytes((field << 3 | 2,)) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _table() -> list[int]:
    made = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        made.append(value)
    return made


_CRC = _table()


def crc32c(data: bytes) -> int:
    """The Castagnoli checksum, which zlib and binascii lack."""
    crc = 0xFFFF_FFFF
    table = _CRC
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFF_FFFF


def _masked(data: bytes) -> int:
    crc = crc32c(data)
    return (crc >> 15 | crc << 17 & 0xFFFF_FFFF) + 0xA282EAD8 & 0xFFFF_FFFF


HEAD: Final = record(_double(1, 0.0) + _message(3, b"brain.Event:2"))
"""The first record of every file."""
