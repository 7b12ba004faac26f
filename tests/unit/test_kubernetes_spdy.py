"""The few frames that a port-forward needs: opened, carried, ended; however the bytes are cut into pieces."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import pytest

from callsheet.backends.kubernetes.spdy import DATA_STREAM, ERROR_STREAM, Tunnel


def data(stream: int, content: bytes, flags: int = 0) -> bytes:
    return struct.pack(">II", stream, flags << 24 | len(content)) + content


def control(kind: int, content: bytes) -> bytes:
    return struct.pack(">II", 0x80030000 | kind, len(content)) + content


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_bytes_arrive_in_order_however_they_are_cut(size: int) -> None:
    whole = control(2, b"ignored reply") + data(DATA_STREAM, b"hello ") + data(DATA_STREAM, b"world", flags=1)
    pieces: Iterator[bytes] = (whole[i : i + size] for i in range(0, len(whole), size))
    assert b"".join(Tunnel(lambda _: None).receive(pieces)) == b"hello world"


def test_both_streams_are_opened_with_their_port() -> None:
    sent: list[bytes] = []
    Tunnel(sent.append).open(8080)
    reader = zlib.decompressobj()
    error, opened = (reader.decompress(frame[18:]) for frame in sent)
    assert b"streamtype\x00\x00\x00\x05error" in error
    assert b"port\x00\x00\x00\x048080" in opened


def test_a_refusal_is_kept_and_ends_the_stream() -> None:
    tunnel = Tunnel(lambda _: None)
    frames = [data(ERROR_STREAM, b"connection refused", flags=1), data(DATA_STREAM, b"never read")]
    assert list(tunnel.receive(iter(frames))) == []
    assert tunnel.complaint == b"connection refused"


def test_pings_are_answered_and_a_reset_ends_it() -> None:
    sent: list[bytes] = []
    frames = [
        control(6, b"\0\0\0\7"),
        control(3, struct.pack(">II", DATA_STREAM, 5)),
        data(DATA_STREAM, b"late"),
    ]
    assert list(Tunnel(sent.append).receive(iter(frames))) == []
    assert sent == [control(6, b"\0\0\0\7")]
