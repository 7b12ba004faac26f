"""Learning curves: in the terminal, in colors or without, and as a picture."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from fake_backend import FakeBackend, FakeRun, status
from PIL import Image

from callsheet.backends import base
from callsheet.cli.charts import text
from callsheet.cli.charts.scale import Series, axis, label
from callsheet.cli.main import call


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The results of a run `bandit-1` whose return grows from 0 to 100."""
    points = [{"elapsed": n / 10, "steps": n * 10, "return": float(n), "loss": 1.0} for n in range(101)]
    write(tmp_path / "bandit" / "1", [*points, {"elapsed": 10.2, "steps": 1000, "evaluation": 120.0}])
    fake = FakeBackend(FakeRun(status("bandit-1", folder=str(tmp_path / "bandit" / "1"))))
    monkeypatch.setattr(base, "backend", lambda name: fake)
    return tmp_path


def write(folder: Path, points: list[dict[str, float]]) -> None:
    (folder / "metrics").mkdir(parents=True)
    (folder / "metrics" / "curve.jsonl").write_text("".join(json.dumps(point) + "\n" for point in points))


def drawn(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert call(["plot", *arguments]) == 0
    return capsys.readouterr().out.rstrip("\n").split("\n")


@pytest.mark.usefixtures("folder")
def test_a_curve_rises_from_the_lower_left_to_the_upper_right(capsys: pytest.CaptureFixture[str]) -> None:
    lines = drawn(capsys, "bandit-1")
    assert lines[0] == "── bandit/bandit-1"
    assert "mean return of the last 20 episodes" in lines[1]
    body = [line for line in lines if "│" in line or "┤" in line]
    columns = [re.search("[\u2801-\u28ff]", line) for line in body]
    places = [found.start() for found in columns if found]
    assert len(places) == len(body), "a line that rises steadily is on every line of the drawing"
    assert places == sorted(places, reverse=True)
    assert "environment steps" in lines[-1]
    assert max(map(len, lines)) <= 100
    assert len(lines) <= 24


@pytest.mark.usefixtures("folder")
def test_other_numbers_and_time_can_be_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    assert "seconds of training" in drawn(capsys, "bandit-1", "--by", "seconds", "--what", "loss")[-1]
    assert "mean return of an evaluation" in "\n".join(drawn(capsys, "bandit-1", "--what", "evaluation"))
    assert call(["plot", "bandit-1", "--what", "los"]) == 2
    assert "did you mean loss?" in capsys.readouterr().err


def test_several_curves_without_colors_have_a_letter_each(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(
        folder / "other" / "2",
        [{"elapsed": 0.0, "steps": 0, "return": 50.0}, {"elapsed": 1.0, "steps": 900, "return": 50.0}],
    )
    lines = drawn(capsys, "bandit-1", str(folder / "other" / "2"))
    assert lines[:2] == ["a bandit/bandit-1", "b other/2"]
    assert any(line.count("b") > 50 for line in lines[2:])


def test_a_picture_shows_every_curve_in_a_color_of_its_own(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(
        folder / "other" / "2",
        [{"elapsed": 0.0, "steps": 0, "return": 50.0}, {"elapsed": 1.0, "steps": 900, "return": 50.0}],
    )
    target = folder / "curves.png"
    assert call(["plot", "bandit-1", str(folder / "other" / "2"), "-o", str(target)]) == 0
    with Image.open(target) as picture:
        assert picture.size == (960, 600)
        colors = [color for _, color in picture.convert("RGB").getcolors(1 << 20) or ()]
    for wanted in ((0x1F, 0x6F, 0xB4), (0xD1, 0x49, 0x5B)):
        assert any(max(abs(a - b) for a, b in zip(wanted, found, strict=True)) < 40 for found in colors)
    assert call(["plot", "bandit-1", "-o", str(folder / "no" / "such.png")]) == 2
    assert "cannot write" in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
def test_points_are_printed_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = json.loads("\n".join(drawn(capsys, "bandit-1", "-o", "json")))
    assert found["run"] == "bandit/bandit-1"
    assert found["points"][3] == {"steps": 30.0, "return": 3.0}


def test_a_run_without_a_curve_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder / "empty" / "3", [])
    assert call(["plot", str(folder / "empty" / "3")]) == 2
    assert "empty/3 has no learning curve" in capsys.readouterr().err
    assert call(["plot", "bandit-1", "-o", "curve.svg"]) == 2
    assert "-o curve.svg is neither json nor the name of a PNG file" in capsys.readouterr().err


@pytest.mark.parametrize("columns", [30, 80, 200])
@pytest.mark.parametrize("points", [[(0.0, 5.0)], [(0.0, -1e9), (1e9, 1e9)], [(0.0, 0.0), (3.0, 1e-9)]])
def test_any_numbers_fit_any_screen(columns: int, points: list[tuple[float, float]]) -> None:
    drawing = text.draw(
        [Series("x" * 300, points)],
        columns=columns,
        lines=20,
        x_title="steps",
        y_title="return",
        seconds=False,
        paint=None,
    )
    assert max(len(line) for line in drawing.split("\n")) <= columns
    assert re.search("[\u2801-\u28ff]", drawing)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 487, ["0", "200", "400"]), (-3, 3, ["-2", "0", "2"]), (0, 53806, ["0", "20k", "40k"])],
)
def test_ticks_are_round_numbers(low: float, high: float, expected: list[str]) -> None:
    found = axis([low, high], 5)
    assert [label(tick, found) for tick in found.ticks] == expected
