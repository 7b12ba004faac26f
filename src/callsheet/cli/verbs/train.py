"""`callsheet train`: train a policy; it generates an experiment and runs it."""

from __future__ import annotations

import os
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from callsheet import contract
from callsheet.backends import user_config
from callsheet.cli import launch, options, output
from callsheet.errors import UserError

if TYPE_CHECKING:
    from callsheet.rl.settings import Training

_text_option = partial(click.option, default="", show_default=False)


@click.command()
@click.argument("algorithm")
@click.option(
    "--env", "environment", metavar="ENV", help="Environment: a Gymnasium id, or package.module:factory."
)
@click.option(
    "--env-option",
    "env_options",
    multiple=True,
    metavar="NAME=VALUE",
    help="Keyword argument for the environment; repeatable.",
)
@click.option("--actors", default=2, metavar="N", help="Number of actor processes.")
@click.option(
    "--inference",
    type=click.Choice(["local", "central"]),
    default="local",
    help="Where actions are computed: in each actor, or in a central policy server.",
)
@click.option(
    "--rewards",
    type=click.Choice(["auto", "true", "sign"]),
    default="auto",
    help="Learn from the true rewards or only their sign (auto: sign for Atari).",
)
@click.option("--seed", default=0, metavar="N", help="Random seed.")
@click.option("--stop-steps", type=int, metavar="N", help="Stop after N environment steps.")
@click.option("--stop-seconds", type=float, metavar="S", help="Stop after S seconds of training.")
@click.option(
    "--stop-return", type=float, metavar="R", help="Stop when an evaluation reaches this mean return."
)
@click.option(
    "--stop-sampled",
    type=float,
    metavar="R",
    help="Stop when the last 20 training episodes reach this mean return.",
)
@click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="NAME=VALUE",
    help="Override a setting, such as learning_rate=0.001; repeatable.",
)
@click.option("--settings", is_flag=True, help="Print all settings with their descriptions, and exit.")
@click.option("--evaluate-every", default=5.0, metavar="S", help="Seconds between evaluations; 0 for none.")
@click.option("--episodes", default=20, metavar="N", help="Episodes per evaluation.")
@click.option("--checkpoint-every", default=60.0, metavar="S", help="Seconds between checkpoints.")
@click.option("--videos", default=0, metavar="N", help="Episodes per evaluation to record as GIFs.")
@click.option(
    "--resume",
    metavar="RUN",
    help="Resume from the newest checkpoint of a run, with its settings: a run, folder or URL.",
)
@_text_option("--name", help="Experiment name (default: ALGORITHM-ENV).")
@_text_option("--storage", metavar="URL", help="Where to write results (default: ./runs).")
@click.option("--tensorboard", is_flag=True, help="Add a TensorBoard role.")
@_text_option("--image", help="Image for all roles, instead of ours (on Kubernetes).")
@_text_option("--actor-image", help="Image for actors, replay and evaluator only.")
@click.option(
    "--registry",
    metavar="HOST[/PATH]",
    default=lambda: user_config.load().registry or contract.REGISTRY,
    envvar="CALLSHEET_REGISTRY",
    show_default=f"{contract.REGISTRY}, or `registry` in ~/.config/callsheet/config.toml",
    show_envvar=True,
    help="Registry of our images: a slim one, and one with PyTorch for the learner (on Kubernetes).",
)
@click.option("--gpus", default=0, metavar="N", help="GPUs for the learner.")
@_text_option("--learner-cpus", metavar="CPUS", help="CPU request of the learner, and its number of threads.")
@_text_option("--actor-cpus", metavar="CPUS", help="CPU request of each actor, and its number of threads.")
@click.option("--replay-shards", default=1, metavar="N", help="Number of replay processes (dqn, sac).")
@click.option("--render", is_flag=True, help="Print the experiment file instead of running it.")
@click.option("-d", "--detach", is_flag=True, help="Start in the background and return.")
@options.on
@options.form("json", "yaml", "name")
def command(
    algorithm: str, render: bool, detach: bool, settings: bool, on: str, form: str | None, **given: Any
) -> int:
    """Train a policy with a built-in algorithm or your own.

    ALGORITHM is impala, ppo, dqn, sac, or your own class as module:Class.

    This generates an experiment with a learner, actors and an evaluator, and runs it. Use --render to print the
    experiment file, edit it, and run it with `callsheet run -f` or kubectl.

    Without a --stop- option, training continues until Ctrl-C, which writes a checkpoint.

    \b
    callsheet train ppo --env CartPole-v1 --stop-sampled 475
    callsheet train impala --env ALE/Pong-v5 --actors 16 --stop-steps 10000000
    callsheet train sac --env HalfCheetah-v5 --set learning_rate=0.0003
    callsheet train ppo --resume ppo-cartpole-v1
    """
    from callsheet.cli.training import arguments

    backend = options.backend(on)
    training = arguments.training_from(algorithm, backend, given)

    from callsheet.cli.training import report
    from callsheet.recipes.training import experiment
    from callsheet.spec.dump import to_yaml

    if settings:
        output.answer(report.settings_table(training))
        return 0
    made = experiment(training, arguments.experiment_options(backend, given))
    if render:
        output.answer(to_yaml(made))
        return 0
    from callsheet.plan.load import loaded_from_model

    if backend.on_this_machine:
        _check_torch(training)
        _check_environment(training)
        _use_this_python()
    if training.stop == type(training.stop)():
        how = "`callsheet stop`" if detach else "Ctrl-C"
        output.say(f"Training until {how}, which writes a checkpoint; use a --stop- option to set a limit.")
    return launch.launch(
        [loaded_from_model(made)],
        on,
        form,
        detach=detach,
        then=lambda ended: report.report_end(ended, backend),
    )


def _check_torch(training: Training) -> None:
    """Check here what the learner would find out only after everything has started; your own algorithm may not need it."""
    from callsheet.rl.algorithms import algorithm

    if algorithm(training.algorithm).own is None and find_spec("torch") is None:
        raise UserError(
            "the learner needs PyTorch, which is not installed", fix="pip install 'callsheet[torch]'"
        )


def _check_environment(training: Training) -> None:
    """Check here what every role would check. The user's own modules are imported only in the run's processes."""
    from callsheet.rl.algorithms import algorithm
    from callsheet.rl.envs import spaces_of
    from callsheet.rl.envs.lookup import is_trusted
    from callsheet.rl.nets.network import resolve

    if is_trusted(training.env):
        settings = algorithm(training.algorithm).settings(training)
        resolve(settings.network, spaces_of(training.env, options=training.options))


def _use_this_python() -> None:
    """The roles run our own programs: make `python` the one that runs this command."""
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
