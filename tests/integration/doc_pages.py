"""Reading the documentation as a test would: its code blocks, the marks before them, its links and headings.

A mark is an HTML comment on the line before a block, which readers do not see:

``<!-- test: run -->``                  run the block; every line of output it shows must really be printed
``<!-- test: run, exits with 2 -->``    the same, and its last command ends with that code
``<!-- test: run, then Ctrl-C -->``     press Ctrl-C once all shown lines have been printed
``<!-- test: file NAME -->``            write the block to that file, for the blocks after it

The blocks of a page run in their order in one folder. In shown output, amounts, run ids and spacing may differ, and
``...`` stands for anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(
    r"^(?:<!-- test: (?P<mark>.+?) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
_LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_RUN_ID = re.compile(r"\b[bcdfghjkmnpqrstvwxz][bcdfghjkmnpqrstvwxz2-9]{7}\b")
_NUMBER = re.compile(r"\d+(?:\.\d+)+|\d{2,}|(?<![\w.])\d(?=[a-z])")
"""Amounts and addresses. A digit by itself is exact: `actor 0 of 4`."""


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    page: Path
    line: int
    language: str
    text: str
    mark: str

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """Every page that people read."""
    found = [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("examples/*/*.md"),
    ]
    return sorted(path for path in found if path.exists())


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, in their order."""
    text = page.read_text(encoding="utf-8")
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        yield Block(page, line, match["language"], match["text"], match["mark"] or "")


def links(page: Path) -> Iterator[str]:
    """The targets of a page's links, those inside code left out."""
    text = re.sub(r"`[^`\n]*`", "", _BLOCK.sub("", page.read_text(encoding="utf-8")))
    yield from (match["target"] for match in _LINK.finditer(text))


def anchors(page: Path) -> set[str]:
    """The anchors that a page's headings make, as code hosts spell them."""
    text = _BLOCK.sub("", page.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def commands_and_output(text: str) -> tuple[str, list[str]]:
    """A console block taken apart: what is typed (after ``$``), and the lines that are shown as its output."""
    typed: list[str] = []
    shown: list[str] = []
    goes_on = False
    for line in text.splitlines():
        if goes_on or line.startswith("$ "):
            typed.append(line if goes_on else line.removeprefix("$ "))
            goes_on = line.endswith("\\")
        elif line.strip():
            shown.append(line)
    return "\n".join(typed), shown


def pattern(line: str) -> re.Pattern[str]:
    """What a shown line must look like when it is printed again."""
    line = _NUMBER.sub("\0n", _RUN_ID.sub("\0i", line.strip()))
    escaped = re.escape(line).replace(r"\.\.\.", ".*")
    escaped = re.sub(r"(?:\\ )+", r"\\s+", escaped)
    return re.compile(escaped.replace("\0n", r"[\d.]+").replace("\0i", "[a-z2-9]{8}"))


def missing(shown: list[str], output: str) -> list[str]:
    """The shown lines that were not printed."""
    printed = [line.strip() for line in output.splitlines()]
    return [line for line in shown if not any(map(pattern(line).fullmatch, printed))]
