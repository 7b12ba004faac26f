"""`callsheet evaluate`: evaluate a trained policy, and record it playing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from callsheet.cli import options, output, results, shell_completion
from callsheet.errors import UserError

if TYPE_CHECKING:
    from callsheet.rl.acting.episodes import EpisodeResults
    from callsheet.rl.loading import LoadedPolicy
    from callsheet.rl.videos import Video


@click.command()
@click.argument("run", shell_complete=shell_completion.runs)
@click.option(
    "--episodes", default=20, type=click.IntRange(1), metavar="N", help="Number of episodes to play."
)
@click.option(
    "--checkpoint",
    default="best",
    metavar="WHICH",
    help="Which checkpoint: best (in the evaluations during training), newest, or a name.",
)
@click.option(
    "--sampled", is_flag=True, help="Sample actions, as in training, instead of taking the most likely one."
)
@click.option(
    "--seed", default=0, metavar="N", help="Random seed of the episodes, which differ from those of training."
)
@click.option(
    "--longest",
    type=click.IntRange(1),
    metavar="N",
    help="Cut episodes short after N steps (default: as in training, 27,000).",
)
@click.option(
    "--video", is_flag=True, help="Record the first episode as a GIF, in the run's evaluations/videos/."
)
@options.on
@options.form("json", "yaml")
def command(
    run: str,
    episodes: int,
    checkpoint: str,
    sampled: bool,
    seed: int,
    longest: int | None,
    video: bool,
    on: str,
    form: str | None,
) -> None:
    """Play episodes with a trained policy and print their returns.

    RUN is a run's id, an experiment's name (its newest run), a results folder, or a URL such as
    s3://bucket/prefix/EXPERIMENT/RUN.
    """
    stored = results.find(run, options.backend(on))
    try:
        from callsheet.rl.loading import load_policy
    except ModuleNotFoundError as error:
        raise UserError(
            f"evaluating needs {error.name}, which is not installed", fix="pip install 'callsheet[rl]'"
        ) from None
    loaded = load_policy(stored.url, checkpoint=checkpoint, sampled=sampled)
    output.say(_description(loaded), "dim")
    longest = longest or loaded.training.evaluation.longest
    played, videos = _play(
        loaded, stored.url, episodes, seed, sampled=sampled, videos=int(video), longest=longest
    )
    data = _data(loaded, played) | {"videos": [f"{stored.url.rstrip('/')}/{one.key}" for one in videos]}
    if form:
        output.answer(output.structured(data, form))
        return
    output.answer(
        f"return {_number(data['mean'])} ± {_number(data['std'])}, from {_number(data['min'])} to "
        f"{_number(data['max'])}, in {episodes} {'episode' if episodes == 1 else 'episodes'} of "
        f"{_number(data['length'])} steps on average"
        + (f"; {played.cut} cut short after {longest:,} steps" if played.cut else "")
    )
    for path in data["videos"]:
        output.answer(f"video {path if '://' in path else output.short_path(path)}")


def _description(loaded: LoadedPolicy) -> str:
    info = loaded.info
    evaluated = ""
    if "evaluation" in info:
        evaluated = f", last evaluated after {info['evaluated']:,} updates: {_number(info['evaluation'])}"
    return (
        f"{loaded.training.algorithm} on {loaded.training.env}, {loaded.checkpoint}: {info['steps']:,} steps, "
        f"{info['updates']:,} updates{evaluated}"
    )


def _play(
    loaded: LoadedPolicy, url: str, episodes: int, seed: int, *, sampled: bool, videos: int, longest: int
) -> tuple[EpisodeResults, list[Video]]:
    from callsheet.rl.envs import make
    from callsheet.rl.envs.base import seed_of
    from callsheet.rl.videos import play_and_record
    from callsheet.store import open_store

    training = loaded.training
    # A number of its own in the seed: neither the actors nor the evaluator of a training have played these episodes.
    own = seed_of(seed, 104_729)
    environments = make(training.env, min(episodes, 16), seed=own, options=training.options)
    try:
        return play_and_record(
            environments,
            training.env,
            loaded.policy,
            open_store(url),
            episodes=episodes,
            videos=videos,
            name=f"{loaded.checkpoint}-seed-{seed}",
            seed=own,
            options=training.options,
            greedy=not sampled,
            longest=longest,
        )
    finally:
        environments.close()


def _data(loaded: LoadedPolicy, played: EpisodeResults) -> dict[str, Any]:
    import numpy as np

    returns = np.array(played.returns)
    return {
        "checkpoint": loaded.checkpoint,
        "steps": int(loaded.info["steps"]),
        "episodes": len(returns),
        "mean": float(returns.mean()),
        "std": float(returns.std()),
        "min": float(returns.min()),
        "max": float(returns.max()),
        "length": float(np.mean(played.steps)),
        "cut": played.cut,
        "returns": returns.tolist(),
    }


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}" if abs(value) >= 10 else f"{value:.3g}"
