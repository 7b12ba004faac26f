"""Records the README's terminal sessions as animated SVGs in docs/images: `python -m tools.recording [demo] [run]`.

A command runs in a pseudo-terminal, a small terminal emulator follows its output, and every change of the screen becomes a
frame. Frames share their lines, so a recording stays small, and the file needs no script or font: GitHub shows it as it is.
"""

from __future__ import annotations

import codecs
import fcntl
import itertools
import os
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COLUMNS, ROWS = 100, 22
FRAME_SECONDS = 0.15
LONGEST_PAUSE = 1.2
LAST_FRAME_SECONDS = 4.0
PALETTE = (
    *("#45475a", "#f38ba8", "#a6e3a1", "#f9e2af", "#89b4fa", "#cba6f7", "#94e2d5", "#bac2de"),
    *("#6c7086", "#f38ba8", "#a6e3a1", "#f9e2af", "#89b4fa", "#cba6f7", "#94e2d5", "#ffffff"),
)
BACKGROUND, FOREGROUND = "#1e1e2e", "#cdd6f4"
CELL_WIDTH, LINE_HEIGHT, MARGIN = 8.4, 19, 16
_ESCAPE = re.compile(r"\x1b(?:\[([?\d;]*)([A-Za-z])|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][A-Z0-9]|[=>78])")


@dataclass(frozen=True)
class Style:
    """How a character looks."""

    color: str = FOREGROUND
    bold: bool = False
    dim: bool = False


Cell = tuple[str, Style]
Line = tuple[Cell, ...]
Frame = tuple[Line, ...]


@dataclass
class Screen:
    """A terminal of fixed size that understands what our programs send."""

    lines: list[list[Cell]] = field(default_factory=lambda: [[]])
    row: int = 0
    column: int = 0
    style: Style = Style()
    rest: str = ""

    def feed(self, text: str) -> None:
        """Follow what a program prints; an escape sequence may arrive in parts."""
        text, self.rest = self.rest + text, ""
        place = 0
        while place < len(text):
            if text[place] != "\x1b":
                self._put(text[place])
                place += 1
            elif found := _ESCAPE.match(text, place):
                if found[2]:
                    self._control(found[1], found[2])
                place = found.end()
            else:
                self.rest = text[place:]
                return

    def frame(self) -> Frame:
        """What is on the screen now."""
        shown = self.lines[-ROWS:]
        return tuple(tuple(line) for line in shown)

    def _put(self, character: str) -> None:
        if character == "\r":
            self.column = 0
        elif character == "\n":
            self._down()
        elif character == "\b":
            self.column = max(0, self.column - 1)
        elif character >= " ":
            if self.column == COLUMNS:
                self.column = 0
                self._down()
            line = self.lines[self.row]
            line.extend([(" ", Style())] * (self.column + 1 - len(line)))
            line[self.column] = (character, self.style)
            self.column += 1

    def _down(self) -> None:
        self.row += 1
        if self.row == len(self.lines):
            self.lines.append([])

    def _control(self, arguments: str, command: str) -> None:
        numbers = [int(number or 0) for number in arguments.lstrip("?").split(";")]
        amount = max(1, numbers[0])
        if command == "m":
            self._restyle(numbers)
        elif command == "A":
            self.row = max(0, self.row - amount)
        elif command == "B":
            self.row = min(len(self.lines) - 1, self.row + amount)
        elif command == "G":
            self.column = amount - 1
        elif command == "K":
            self.lines[self.row] = [] if numbers[0] == 2 else self.lines[self.row][: self.column]
        elif command == "J":
            del self.lines[self.row + 1 :]
            self.lines[self.row] = self.lines[self.row][: self.column]

    def _restyle(self, numbers: list[int]) -> None:
        codes = iter(numbers)
        for code in codes:
            style = self.style
            if code == 0:
                self.style = Style()
            elif code in (1, 2, 22):
                self.style = Style(style.color, bold=code == 1, dim=code == 2)
            elif code == 39 or 30 <= code <= 37 or 90 <= code <= 97:
                color = FOREGROUND if code == 39 else PALETTE[code - 30 if code < 90 else code - 82]
                self.style = Style(color, style.bold, style.dim)
            elif code == 38:
                self.style = Style(_extended(codes), style.bold, style.dim)


def _extended(codes: Iterator[int]) -> str:
    """A color of 256, or a true color."""
    if next(codes, 0) == 2:
        return f"#{next(codes, 0):02x}{next(codes, 0):02x}{next(codes, 0):02x}"
    number = next(codes, 0)
    if number < 16:
        return PALETTE[number]
    if number >= 232:
        return f"#{8 + 10 * (number - 232):02x}" + f"{8 + 10 * (number - 232):02x}" * 2
    steps = (0, 95, 135, 175, 215, 255)
    red, green, blue = ((number - 16) // 36, (number - 16) // 6 % 6, (number - 16) % 6)
    return f"#{steps[red]:02x}{steps[green]:02x}{steps[blue]:02x}"


def record(command: list[str], shown: str, folder: Path) -> list[tuple[float, Frame]]:
    """Run a command in a terminal: its frames, each with the time at which it appeared."""
    screen = Screen()
    screen.feed(f"\x1b[1;32m$\x1b[0m {shown}\r\n")
    terminal, child_side = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "PATH": f"{ROOT}/.venv/bin:{os.environ['PATH']}"}
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=child_side,
        stdout=child_side,
        stderr=child_side,
        start_new_session=True,
    )
    os.close(child_side)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    began = time.monotonic()
    frames = [(0.0, screen.frame())]
    alive = True
    while alive:
        until = time.monotonic() + FRAME_SECONDS
        while alive and (left := until - time.monotonic()) > 0:
            if select.select([terminal], [], [], left)[0]:
                try:
                    data = os.read(terminal, 65536)
                except OSError:  # how Linux says that the other end of a terminal is closed
                    data = b""
                alive = bool(data)
                screen.feed(decoder.decode(data))
        if screen.frame() != frames[-1][1]:
            frames.append((time.monotonic() - began, screen.frame()))
    os.close(terminal)
    if code := process.wait():
        raise SystemExit(f"{shown} exited with {code}")
    return frames


def svg(frames: list[tuple[float, Frame]], title: str) -> str:
    """An animation of the frames; the last one is shown where nothing moves."""
    pauses = [min(after - before, LONGEST_PAUSE) for (before, _), (after, _) in itertools.pairwise(frames)]
    starts = [0.0, *itertools.accumulate(pauses)]
    whole = starts[-1] + LAST_FRAME_SECONDS
    width, height = COLUMNS * CELL_WIDTH + 2 * MARGIN, ROWS * LINE_HEIGHT + 3 * MARGIN
    ids: dict[Line, str] = {}
    styles, groups = [], []
    for number, (start, (_, frame)) in enumerate(zip(starts, frames, strict=True)):
        last = number == len(frames) - 1
        until = "" if last else f"{100 * starts[number + 1] / whole:.2f}%{{visibility:hidden}}"
        first = "" if number == 0 else "0%{visibility:hidden}"
        styles.append(
            f"@keyframes k{number}{{{first}{100 * start / whole:.2f}%{{visibility:visible}}{until}}}"
        )
        uses = (
            f'<use href="#{ids.setdefault(line, f"l{len(ids)}")}" y="{place * LINE_HEIGHT}"/>'
            for place, line in enumerate(frame)
            if line
        )
        shown = "visible" if last else "hidden"
        animation = f"animation:k{number} {whole:.2f}s step-end infinite"
        groups.append(f'<g visibility="{shown}" style="{animation}">{"".join(uses)}</g>')
    lines = "\n".join(f'<text id="{name}">{_spans(line)}</text>' for line, name in ids.items())
    dots = "".join(
        f'<circle cx="{MARGIN + 18 * place}" cy="{MARGIN}" r="6" fill="{color}"/>'
        for place, color in enumerate(("#f38ba8", "#f9e2af", "#a6e3a1"))
    )
    newline = "\n"
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(title)}">
<title>{escape(title)}</title>
<style>text{{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:{FOREGROUND}}}
.b{{font-weight:bold}}.d{{opacity:.6}}
{newline.join(styles)}</style>
<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>{dots}
<defs>
{lines}
</defs>
<g transform="translate({MARGIN} {MARGIN * 3})">
{newline.join(groups)}
</g>
</svg>
"""


def _spans(line: Line) -> str:
    """A line's text, each stretch of one style at its column; wide gaps are left to the columns."""
    spans, column = [], 0
    for style, cells in itertools.groupby(line, key=lambda cell: cell[1]):
        text = "".join(character for character, _ in cells)
        kind = f' class="{"b" if style.bold else "d"}"' if style.bold or style.dim else ""
        color = f' fill="{style.color}"' if style.color != FOREGROUND else ""
        for words in re.finditer(r"\S+(?: \S+)*", text):
            left, width = (column + words.start()) * CELL_WIDTH, len(words[0]) * CELL_WIDTH
            spans.append(
                f'<tspan x="{left:.1f}" textLength="{width:.1f}"{kind}{color}>{escape(words[0], quote=False)}</tspan>'
            )
        column += len(text)
    return "".join(spans)


def main() -> None:
    """Record what is named, or everything."""
    wanted = sys.argv[1:] or ["demo", "run"]
    images = ROOT / "docs" / "images"
    images.mkdir(exist_ok=True)
    if "demo" in wanted:
        frames = record(["make", "demo"], "make demo", ROOT)
        (images / "demo.svg").write_text(svg(frames, "make demo trains a policy until it solves CartPole"))
    if "run" in wanted:
        with tempfile.TemporaryDirectory() as folder:
            script = "callsheet init first && callsheet run -f first/experiment.yaml"
            frames = record(["bash", "-c", script], script, Path(folder))
        (images / "run.svg").write_text(
            svg(frames, "callsheet run shows the log above a live table of roles")
        )


if __name__ == "__main__":
    main()
