"""Log lines in bulk: at a hundred thousand lines a second, an object per line costs too much."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import AnyStr

from callsheet.backends.base import LogLine


@dataclass(frozen=True, slots=True)
class LogChunk:
    """Whole lines of one container."""

    role: str
    index: int
    container: str
    text: str
    """Never empty; every line ends with a newline."""

    @staticmethod
    def decode(role: str, index: int, container: str, data: bytes) -> LogChunk:
        """The lines in these bytes. A missing newline at the end is added; CRLF becomes LF."""
        text = data.decode(errors="replace")
        if not text.endswith("\n"):
            text += "\n"
        return LogChunk(role, index, container, text.replace("\r\n", "\n") if "\r" in text else text)

    def lines(self) -> list[LogLine]:
        """The lines one by one."""
        return [LogLine(self.role, self.index, self.container, text) for text in self.texts()]

    def texts(self) -> list[str]:
        """The lines without their newlines."""
        return self.text[:-1].split("\n")

    def with_lines(self, texts: Iterable[str]) -> LogChunk:
        """The same container with these lines."""
        return LogChunk(self.role, self.index, self.container, "\n".join(texts) + "\n")

    def prefixed(self, prefix: str) -> str:
        """The text with a prefix before each line."""
        return prefix + self.text[:-1].replace("\n", "\n" + prefix) + "\n"


def lines(chunks: Iterable[LogChunk]) -> Iterator[LogLine]:
    """Every line of every chunk."""
    for chunk in chunks:
        yield from chunk.lines()


def matching(chunks: Iterable[LogChunk], regex: str | None) -> Iterator[LogChunk]:
    """Only the lines that match, or all without a regular expression."""
    if regex is None:
        yield from chunks
        return
    search = re.compile(regex).search
    for chunk in chunks:
        texts = [text for text in chunk.texts() if search(text)]
        if texts:
            yield chunk.with_lines(texts)


def last_lines(chunks: Iterable[LogChunk], count: int | None) -> Iterator[LogChunk]:
    """Only the last lines of one container, or all without a count."""
    if count is None:
        yield from chunks
        return
    kept: deque[str] = deque(maxlen=count)
    chunk = None
    for chunk in chunks:
        kept.extend(chunk.texts())
    if chunk and kept:
        yield chunk.with_lines(kept)


def whole_lines(blocks: Iterable[AnyStr], end: AnyStr) -> Iterator[AnyStr]:
    """Blocks cut at line ends; a last line without one comes without one."""
    rest = end[:0]
    for block in blocks:
        text = rest + block
        at = text.rfind(end) + 1
        rest = text[at:]
        if at:
            yield text[:at]
    if rest:
        yield rest
