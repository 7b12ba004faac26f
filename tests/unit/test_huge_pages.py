"""Blocks of a megabyte and more lie in large pages where the system has them, and work the same where it has not."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator

import numpy as np
import pytest

from callsheet.runtime.link import huge_pages as pages
from callsheet.runtime.link.blocks import Block, Mapped
from callsheet.runtime.link.huge_pages import LARGE, enlarge, mapped, rounded

BOTH = mmap.PROT_READ | mmap.PROT_WRITE


@pytest.fixture
def file() -> Iterator[int]:
    fd = os.memfd_create("pages")
    os.ftruncate(fd, 2 * LARGE)
    yield fd
    os.close(fd)


def address(view: memoryview) -> int:
    return int(np.frombuffer(view, np.uint8).ctypes.data)


@pytest.mark.parametrize("usable", [True, False], ids=["large", "small"])
def test_what_one_writes_the_other_reads_whatever_the_pages(
    usable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "USABLE", usable)
    block, theirs = Block(0), Mapped()
    block.grow(LARGE // 2 + 1)
    assert block.size == (LARGE if usable else LARGE // 2 + 64 * 1024)
    block.view[:] = os.urandom(1024) * (block.size // 1024)
    theirs.add(0, os.dup(block.fd))
    assert theirs.view(0, block.size) == block.view
    assert theirs.view(0, 1).readonly
    theirs.close()
    block.close()


def test_a_map_begins_where_a_large_page_can(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "USABLE", True)
    maps = [mapped(file, 2 * LARGE, BOTH) for _ in range(3)]
    assert [address(view) % LARGE for _, view in maps] == [0, 0, 0]
    enlarge(*maps[0])
    maps[0][1][5] = 7
    assert [view[5] for _, view in maps] == [7, 7, 7]


def test_where_the_system_refuses_it_is_an_ordinary_map(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "USABLE", True)
    monkeypatch.setattr(pages, "_mmap", lambda *_: -1)
    memory, view = mapped(file, 2 * LARGE, BOTH)
    assert len(memory) == len(view) == 2 * LARGE
    enlarge(memory, view)
    view[-1] = 7
    assert os.pread(file, 1, 2 * LARGE - 1) == b"\x07"


def test_a_view_outlives_its_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "USABLE", True)
    block, theirs = Block(0), Mapped()
    block.grow(LARGE)
    block.view[:3] = b"abc"
    theirs.add(0, os.dup(block.fd))
    kept = np.frombuffer(theirs.view(0, LARGE), np.uint8)
    theirs.close()
    block.close()
    assert bytes(kept[:3]) == b"abc"


def test_memory_is_at_most_doubled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "USABLE", True)
    step = 64 * 1024
    assert rounded(600_000, step) == 10 * step, "small ones are not enlarged"
    assert rounded(LARGE + 1, step) == 2 * LARGE
    assert all(rounded(size, step) <= 2 * size for size in range(step, 4 * LARGE, 4093))
