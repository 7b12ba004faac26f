"""`callsheet plot`: learning curves of one or several trainings, here or as a picture."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from callsheet.cli import options, output, results
from callsheet.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from callsheet.cli.charts.scale import Series

_BY = {"steps": ("steps", "environment steps"), "seconds": ("elapsed", "seconds of training")}
_TITLES = {"return": "mean return of the last 20 episodes", "evaluation": "mean return of an evaluation"}
_WITHOUT_SCREEN = (100, 24)
"""Columns and lines where there is no terminal."""


@click.command()
@options.run(many=True)
@click.option(
    "--by", type=click.Choice(list(_BY)), default="steps", show_default=True, help="What goes to the right."
)
@click.option(
    "--what",
    default="return",
    show_default=True,
    metavar="FIELD",
    help="What goes up: return, evaluation, or another number of the curve such as loss, lag or hunger.",
)
@click.option(
    "-o",
    "--output",
    "target",
    metavar="FILE.png|json",
    help="Write a picture instead; with json print the points.",
)
@options.on
def command(runs: tuple[str, ...], by: str, what: str, target: str | None, on: str) -> None:
    """Draw learning curves: of one training, or of several in one picture.

    RUN is a run's id, an experiment's name (its newest run), a folder of results, or an address such as
    s3://bucket/prefix/EXPERIMENT/RUN. A training that is going on is drawn as far as it is.
    """
    if target not in (None, "json") and not str(target).lower().endswith(".png"):
        raise UserError(
            f"-o {target} is neither json nor the name of a PNG file", fix="such as -o curves.png"
        )
    found = [results.find(run, on) for run in runs]
    curves = [_series(one, by, what) for one in found]
    if target == "json":
        data = [{"run": one.name, "points": [{by: x, what: y} for x, y in one.points]} for one in curves]
        output.answer(output.structured(data, "json"))
        return
    titles = {"x_title": _BY[by][1], "y_title": _TITLES.get(what, what)}
    if target:
        from callsheet.cli.charts import png

        png.write(
            Path(target),
            curves,
            title=titles["y_title"],
            x_title=titles["x_title"],
            seconds=by == "seconds",
        )
        output.say(f"wrote {target}")
        return
    output.answer(_text(curves, seconds=by == "seconds", **titles))


def _text(curves: list[Series], *, x_title: str, y_title: str, seconds: bool) -> str:
    from callsheet.cli.charts import text

    columns, lines = _WITHOUT_SCREEN
    if output.is_terminal(sys.stdout):
        columns, lines = output.screen_columns(), output.screen_lines() - 1
    colors = output.ROLE_COLORS
    return text.draw(
        curves,
        columns=columns,
        lines=lines,
        x_title=x_title,
        y_title=y_title,
        seconds=seconds,
        paint=(lambda told, number: output.paint(told, colors[number % len(colors)]))
        if output.has_color(sys.stdout)
        else None,
    )


def _series(found: results.Results, by: str, what: str) -> Series:
    from callsheet.cli.charts.scale import Series

    points = _points(found)
    if not points:
        raise UserError(
            f"{found.name} has no learning curve",
            fix="is it a training, and has it begun? It is written every few seconds",
        )
    key = _BY[by][0]
    chosen = [
        (float(point[key]), float(point[what]))
        for point in points
        if _is_number(point.get(what)) and key in point
    ]
    if not chosen:
        fields = sorted({name for point in points for name, value in point.items() if _is_number(value)})
        known = [name for name in fields if name not in ("time", "elapsed")]
        raise UserError(
            f"the learning curve of {found.name} has no {what!r}",
            fix=did_you_mean(what, known, f"it has {', '.join(known)}"),
        )
    return Series(found.name, chosen)


def _points(found: results.Results) -> list[dict[str, Any]]:
    try:
        from callsheet.rl.learning_curve import LearningCurve
        from callsheet.store import open_store
    except ModuleNotFoundError as error:
        raise UserError(
            f"learning curves need {error.name}, which is not installed", fix="pip install 'callsheet[rl]'"
        ) from None
    return LearningCurve(open_store(found.url)).points


def _is_number(value: Any) -> bool:
    import math

    return isinstance(value, int | float) and math.isfinite(value)
