"""Log lines in bulk: whoever passes on a hundred thousand lines a second cannot make an object of each."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import AnyStr

from callsheet.backends.base import LogLine


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Whole lines of one container."""

    role: str
    index: int
    container: str
    text: str
    """Never empty; every line in it has its end."""

    @staticmethod
    def decode(role: str, index: int, container: str, data: bytes) -> LogPiece:
        """The lines in these bytes. An end that is missing at the last one is added, and Windows' ends become ours."""
        text = data.decode(errors="replace")
        if not text.endswith("\n"):
            text += "\n"
        return LogPiece(role, index, container, text.replace("\r\n", "\n") if "\r" in text else text)

    def lines(self) -> list[LogLine]:
        """The lines one by one."""
        return [LogLine(self.role, self.index, self.container, text) for text in self.texts()]

    def texts(self) -> list[str]:
        """The lines' texts without their ends."""
        return self.text[:-1].split("\n")

    def of(self, texts: Iterable[str]) -> LogPiece:
        """A piece of the same container with these lines."""
        return LogPiece(self.role, self.index, self.container, "\n".join(texts) + "\n")

    def after(self, prefix: str) -> str:
        """The text with a prefix before each line."""
        return prefix + self.text[:-1].replace("\n", "\n" + prefix) + "\n"


def lines(pieces: Iterable[LogPiece]) -> Iterator[LogLine]:
    """Every line of every piece."""
    for piece in pieces:
        yield from piece.lines()


def matching(pieces: Iterable[LogPiece], regex: str | None) -> Iterator[LogPiece]:
    """Only the lines that match, or all when there is nothing to match."""
    if regex is None:
        yield from pieces
        return
    search = re.compile(regex).search
    for piece in pieces:
        texts = [text for text in piece.texts() if search(text)]
        if texts:
            yield piece.of(texts)


def last(pieces: Iterable[LogPiece], count: int | None) -> Iterator[LogPiece]:
    """Only the last lines of one container, or all when no number is given."""
    if count is None:
        yield from pieces
        return
    kept: deque[str] = deque(maxlen=count)
    piece = None
    for piece in pieces:
        kept.extend(piece.texts())
    if piece and kept:
        yield piece.of(kept)


def whole(blocks: Iterable[AnyStr], end: AnyStr) -> Iterator[AnyStr]:
    """Blocks cut at `end`, the line end; a last line without one comes without one."""
    rest = end[:0]
    for block in blocks:
        text = rest + block
        at = text.rfind(end) + 1
        rest = text[at:]
        if at:
            yield text[:at]
    if rest:
        yield rest
