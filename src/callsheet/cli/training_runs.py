"""What `callsheet train` knows of training runs: one to go on from, and what to tell when one has ended."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from callsheet.cli import options, output, results
from callsheet.errors import CallsheetError, UserError

if TYPE_CHECKING:
    from callsheet.backends.base import Status
    from callsheet.rl.settings import Training


def earlier(reference: str, on: str) -> tuple[str, Training]:
    """Where the results of a run are, as a URL, and what its newest checkpoint says it was told."""
    import msgspec

    from callsheet.rl.checkpoints import FOLDER
    from callsheet.rl.settings import Training
    from callsheet.store import latest, open_store

    found = results.find(reference, on)
    url = found.url if "://" in found.url else Path(found.url).resolve().as_uri()
    if on != "local" and url.startswith("file:"):
        raise UserError(
            f"the results of {found.name} are in a folder of this machine, which a cluster does not see",
            fix="copy them to a bucket and write --resume s3://bucket/prefix/EXPERIMENT/RUN",
        )
    newest = latest(open_store(found.url).sub(FOLDER), skip_bad=True)
    if newest is None:
        raise UserError(
            f"{found.name} has no checkpoint to go on from",
            fix="one is written every --checkpoint-every seconds, and when the training is stopped",
        )
    try:
        return url, msgspec.convert(dict(newest.info["training"]), Training)
    except (KeyError, msgspec.ValidationError) as error:
        raise UserError(
            f"the checkpoint {newest.name} was not written by this version's training: {error}",
            fix="go on with the version that wrote it",
        ) from None


def check_resumed(before: Training, algorithm: str, environment: str, actors: int) -> None:
    """Refuse what a training cannot change when it goes on."""
    from callsheet.rl.algorithms import algorithm as find

    if before.algorithm != algorithm:
        raise UserError(
            f"that run was trained with {before.algorithm}, and {algorithm} cannot go on from it",
            fix=f"callsheet train {before.algorithm} ...",
        )
    if before.env != environment:
        raise UserError(
            f"that run was trained on {before.env}, and its policy does not fit {environment}",
            fix=f"leave --env out, or write --env {before.env}",
        )
    if find(algorithm).in_step and before.actors != actors:
        raise UserError(
            f"that run had {before.actors} actors; {algorithm} waits for all of them and learns from what they play "
            f"together, so that {actors} would change what it learns from",
            fix="leave --actors out; impala takes any number",
        )


def tell_end(ended: Sequence[Status], on: str) -> None:
    """What came out of a training, and what one is likely to type next; nothing of one that kept nothing."""
    status = ended[0]
    where = options.where(on)
    try:
        _, training = earlier(status.run, on)
        result = _result(results.of(status).url)
    except CallsheetError:
        return
    again: list[tuple[str, str]] = []
    if result:
        output.say(f"  {_sentence(result)}")
    else:
        line = f"callsheet train{where} {training.algorithm} --resume {status.experiment}"
        again.append((line, "go on from its newest checkpoint"))
    output.next_commands(
        [
            (f"callsheet plot{where} {status.experiment}", "its learning curve"),
            (f"callsheet evaluate{where} {status.experiment} --video", "how good it is, and how it looks"),
            *again,
        ]
    )


def _result(url: str) -> dict[str, Any]:
    """What the learner wrote at the end; empty when the training did not come to its end."""
    from callsheet.store import NotFound, open_store

    try:
        found: dict[str, Any] = json.loads(open_store(url).get("result.json"))
    except (NotFound, ValueError):
        return {}
    return found


def _sentence(result: dict[str, Any]) -> str:
    from callsheet.cli import words

    seconds = float(result["seconds"])
    took = words.age(seconds) if seconds >= 60 else f"{seconds:.1f} s"
    found = [("return", result["return"]), ("evaluation", result["evaluation"])]
    numbers = "".join(f", {name} {value:,.1f}" for name, value in found if value is not None)
    return f"{result['steps']:,} steps in {took} of training{numbers}"
