"""Blocks of a megabyte and more lie in large pages where the system has them, and work the same where it has not."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator

import numpy as np
import pytest

from callsheet.runtime.link import huge_pages
from callsheet.runtime.link.blocks import Block, MappedBlocks
from callsheet.runtime.link.huge_pages import HUGE_PAGE, map_aligned, request_huge_pages, round_up

BOTH = mmap.PROT_READ | mmap.PROT_WRITE


@pytest.fixture
def file() -> Iterator[int]:
    fd = os.memfd_create("pages")
    os.ftruncate(fd, 2 * HUGE_PAGE)
    yield fd
    os.close(fd)


def address(view: memoryview) -> int:
    return int(np.frombuffer(view, np.uint8).ctypes.data)


@pytest.mark.parametrize("usable", [True, False], ids=["large", "small"])
def test_what_one_writes_the_other_reads_whatever_the_pages(
    usable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huge_pages, "ENABLED", usable)
    block, theirs = Block(0), MappedBlocks()
    block.grow(HUGE_PAGE // 2 + 1)
    assert block.size == (HUGE_PAGE if usable else HUGE_PAGE // 2 + 64 * 1024)
    block.view[:] = os.urandom(1024) * (block.size // 1024)
    theirs.add(0, os.dup(block.fd))
    assert theirs.view(0, block.size) == block.view
    assert theirs.view(0, 1).readonly
    theirs.close()
    block.close()


def test_a_map_begins_where_a_large_page_can(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huge_pages, "ENABLED", True)
    maps = [map_aligned(file, 2 * HUGE_PAGE, BOTH) for _ in range(3)]
    assert [address(view) % HUGE_PAGE for _, view in maps] == [0, 0, 0]
    request_huge_pages(*maps[0])
    maps[0][1][5] = 7
    assert [view[5] for _, view in maps] == [7, 7, 7]


def test_where_the_system_refuses_it_is_an_ordinary_map(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huge_pages, "ENABLED", True)
    monkeypatch.setattr(huge_pages, "_mmap", lambda *_: -1)
    memory, view = map_aligned(file, 2 * HUGE_PAGE, BOTH)
    assert len(memory) == len(view) == 2 * HUGE_PAGE
    request_huge_pages(memory, view)
    view[-1] = 7
    assert os.pread(file, 1, 2 * HUGE_PAGE - 1) == b"\x07"


def test_a_view_outlives_its_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huge_pages, "ENABLED", True)
    block, theirs = Block(0), MappedBlocks()
    block.grow(HUGE_PAGE)
    block.view[:3] = b"abc"
    theirs.add(0, os.dup(block.fd))
    kept = np.frombuffer(theirs.view(0, HUGE_PAGE), np.uint8)
    theirs.close()
    block.close()
    assert bytes(kept[:3]) == b"abc"


def test_memory_is_at_most_doubled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huge_pages, "ENABLED", True)
    step = 64 * 1024
    assert round_up(600_000, step) == 10 * step, "small ones are not enlarged"
    assert round_up(HUGE_PAGE + 1, step) == 2 * HUGE_PAGE
    assert all(round_up(size, step) <= 2 * size for size in range(step, 4 * HUGE_PAGE, 4093))
