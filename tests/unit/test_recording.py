"""The README's recordings: what a terminal shows becomes frames of a picture."""

from __future__ import annotations

from xml.etree import ElementTree

from tools.recording import PALETTE, Frame, Screen, svg


def text(frame: Frame) -> list[str]:
    return ["".join(character for character, _ in line) for line in frame]


def test_a_live_view_replaces_its_own_lines() -> None:
    screen = Screen()
    screen.feed("log line\r\nactor 1/2\r\nlearner 0/1")
    screen.feed("\r\x1b[2K\x1b[1A\x1b[2K")
    screen.feed("next line\r\nactor 2/2")
    assert text(screen.frame()) == ["log line", "next line", "actor 2/2"]


def test_an_escape_sequence_may_arrive_in_two_parts() -> None:
    screen = Screen()
    screen.feed("a\x1b[3")
    screen.feed("1mb")
    ((first, second),) = screen.frame()
    assert (first[0], second[0], second[1].color) == ("a", "b", PALETTE[1])


def test_a_picture_has_every_frame_and_shows_the_last_one_where_nothing_moves() -> None:
    screen = Screen()
    screen.feed("<first>")
    before = screen.frame()
    screen.feed("\r\nsecond & last")
    picture = ElementTree.fromstring(svg([(0.0, before), (0.5, screen.frame())], "A title"))
    name = "{http://www.w3.org/2000/svg}"
    assert [span.text for span in picture.iter(f"{name}tspan")] == ["<first>", "second & last"]
    frames = [group for group in picture.iter(f"{name}g") if group.get("visibility")]
    assert [group.get("visibility") for group in frames] == ["hidden", "visible"]
    assert [len(list(group)) for group in frames] == [1, 2]
