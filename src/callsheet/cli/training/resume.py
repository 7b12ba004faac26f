"""Continue a training from the newest checkpoint of an earlier run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from callsheet.cli import results
from callsheet.errors import UserError

if TYPE_CHECKING:
    from callsheet.backends.base import Backend
    from callsheet.rl.settings import Training


def earlier(reference: str, backend: Backend) -> tuple[str, Training]:
    """Where the results of a run are, as a URL, and the training that its newest checkpoint belongs to."""
    import msgspec

    from callsheet.rl.checkpoints import FOLDER
    from callsheet.rl.settings import Training
    from callsheet.store import latest, open_store

    stored = results.find(reference, backend)
    url = stored.url if "://" in stored.url else Path(stored.url).resolve().as_uri()
    if not backend.on_this_machine and url.startswith("file:"):
        raise UserError(
            f"the results of {stored.name} are in a folder on this machine, which the cluster cannot see",
            fix="copy them to a bucket and write --resume s3://bucket/prefix/EXPERIMENT/RUN",
        )
    newest = latest(open_store(stored.url).sub(FOLDER), skip_bad=True)
    if newest is None:
        raise UserError(
            f"{stored.name} has no checkpoint to resume from",
            fix="one is written every --checkpoint-every seconds, and when the training is stopped",
        )
    try:
        return url, msgspec.convert(dict(newest.info["training"]), Training)
    except (KeyError, msgspec.ValidationError) as error:
        raise UserError(
            f"the checkpoint {newest.name} was not written by this version's training: {error}",
            fix="resume it with the version that wrote it",
        ) from None


def check_resumed(before: Training, algorithm: str, environment: str, actors: int) -> None:
    """Raise if something differs that must stay the same when a training is resumed."""
    from callsheet.rl.algorithms import algorithm as find

    if before.algorithm != algorithm:
        raise UserError(
            f"that run was trained with {before.algorithm}; {algorithm} cannot resume it",
            fix=f"callsheet train {before.algorithm} ...",
        )
    if before.env != environment:
        raise UserError(
            f"that run was trained on {before.env}, and its policy does not fit {environment}",
            fix=f"leave --env out, or write --env {before.env}",
        )
    if find(algorithm).in_step and before.actors != actors:
        raise UserError(
            f"that run had {before.actors} actors; {algorithm} learns from all of them together, so that {actors} "
            "would change what it learns from",
            fix="leave --actors out; impala takes any number",
        )
