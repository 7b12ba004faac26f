"""`callsheet plot`: draw learning curves, in the terminal or as an image."""

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
_DEFAULT_SIZE = (100, 24)
"""Columns and lines without a terminal."""


@click.command()
@options.run(many=True)
@click.option("--by", type=click.Choice(list(_BY)), default="steps", help="X axis.")
@click.option(
    "--what",
    default="return",
    metavar="FIELD",
    help="Y axis: return, evaluation, or another field of the curve, such as loss, lag or hunger.",
)
@click.option(
    "-o", "--output", "target", metavar="FILE.png|json", help="Write an image, or print the points as JSON."
)
@options.on
def command(runs: tuple[str, ...], by: str, what: str, target: str | None, on: str) -> None:
    """Draw the learning curves of trainings.

    RUN is a run's id, an experiment's name (its newest run), a results folder, or a URL such as
    s3://bucket/prefix/EXPERIMENT/RUN. It may still be running.
    """
    if target not in (None, "json") and not str(target).lower().endswith(".png"):
        raise UserError(
            f"-o {target} is neither json nor the name of a PNG file", fix="write for example -o curves.png"
        )
    backend = options.backend(on)
    curves = [_series(results.find(run, backend), by, what) for run in runs]
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
        output.say(f"Wrote {target}.")
        return
    output.answer(_text(curves, seconds=by == "seconds", **titles))


def _text(curves: list[Series], *, x_title: str, y_title: str, seconds: bool) -> str:
    from callsheet.cli.charts import text

    columns, lines = _DEFAULT_SIZE
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
        paint=(lambda text, number: output.paint(text, colors[number % len(colors)]))
        if output.has_color(sys.stdout)
        else None,
    )


def _series(stored: results.Results, by: str, what: str) -> Series:
    from callsheet.cli.charts.scale import Series

    points = _points(stored)
    if not points:
        raise UserError(
            f"{stored.name} has no learning curve",
            fix="check that it is a training and has started; the curve is written every few seconds",
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
            f"the learning curve of {stored.name} has no {what!r}",
            fix=did_you_mean(what, known, f"it has {', '.join(known)}"),
        )
    return Series(stored.name, chosen)


def _points(stored: results.Results) -> list[dict[str, Any]]:
    try:
        from callsheet.rl.learning_curve import LearningCurve
        from callsheet.store import open_store
    except ModuleNotFoundError as error:
        raise UserError(
            f"learning curves need {error.name}, which is not installed", fix="pip install 'callsheet[rl]'"
        ) from None
    return LearningCurve(open_store(stored.url)).points


def _is_number(value: Any) -> bool:
    import math

    return isinstance(value, int | float) and math.isfinite(value)
