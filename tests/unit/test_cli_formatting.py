"""Numbers and foreign text on the screen."""

from __future__ import annotations

import pytest

from callsheet.cli import formatting, output


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (45.9, "45s"), (192, "3m12s"), (180, "3m"), (7500, "2h5m"), (273600, "3d4h"), (-1, "0s")],
)
def test_ages_have_two_units_at_most(seconds: float, text: str) -> None:
    assert formatting.age(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (300 * 1024**2, "300 MiB"), (5 * 1024**4, "5.0 TiB")],
)
def test_sizes_stay_short(count: int, text: str) -> None:
    assert formatting.size(count) == text


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain\ttext é 日本", "plain\ttext é 日本"),
        ("\x1b[2J\x1b[Hwiped?", "wiped?"),
        ("\x1b]0;a new title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b[?1049h\x1b(B\x1bcgone", "gone"),
        ("bell\x07 null\x00 c1\x9b31m del\x7f", "bell null c131m del"),
        (" 10%\r 50%\r100%", "100%"),
        ("windows\r\n", "windows"),
        ("cut off \x1b[", "cut off "),
        ("bytes \udcff\udcfe", "bytes \udcff\udcfe"),
    ],
)
def test_a_log_line_cannot_break_the_screen(raw: str, shown: str) -> None:
    assert formatting.clean(raw, colors=False) == shown
    assert formatting.clean(raw, colors=True).removesuffix(formatting.RESET) == shown


def test_colors_of_a_log_line_stay_where_there_is_color_and_end_with_the_line() -> None:
    line = "\x1b[31mred\x1b[2K and more"
    assert formatting.clean(line, colors=True) == "\x1b[31mred and more\x1b[0m"
    assert formatting.clean(line, colors=False) == "red and more"


def test_an_endless_line_is_cut_and_says_so() -> None:
    assert formatting.clean("x" * 5000, colors=False) == "x" * 2000 + "… (3,000 more characters)"


def test_wide_characters_count_twice_when_a_cell_is_cut() -> None:
    assert formatting.width("日本") == 4
    assert formatting.shorten("日本語の行", 6) == "日本…"
    assert formatting.shorten("short", 6) == "short"


def test_a_table_stays_a_table_whatever_its_cells_hold() -> None:
    text = output.table(("NAME", "COMMAND"), [("日本", "python -c 'a\nb'"), ("x", "")])
    assert text.splitlines() == ["NAME  COMMAND", "日本  python -c 'a↵b'", "x"]
