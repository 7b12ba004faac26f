"""`callsheet train`: a built-in algorithm on an environment, as an experiment that is written and run at once."""

from __future__ import annotations

import os
import sys
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


@click.command()
@click.argument("algorithm")
@click.option("--env", "environment", metavar="ENV", help="A Gymnasium id, or package.module:factory.")
@click.option(
    "--env-option",
    "env_options",
    multiple=True,
    metavar="NAME=VALUE",
    help="Passed to the environment; repeatable.",
)
@click.option("--actors", default=2, show_default=True, metavar="N", help="Processes that play.")
@click.option(
    "--inference",
    type=click.Choice(["local", "central"]),
    default="local",
    show_default=True,
    help="Who chooses actions: each actor, or a policy server for all of them.",
)
@click.option(
    "--rewards",
    type=click.Choice(["auto", "true", "sign"]),
    default="auto",
    show_default=True,
    help="What is learned from: true rewards, or their signs; auto: signs for Atari.",
)
@click.option("--seed", default=0, show_default=True, metavar="N", help="Of everything drawn by chance.")
@click.option("--stop-steps", type=int, metavar="N", help="End after so many environment steps.")
@click.option("--stop-seconds", type=float, metavar="S", help="End after so much training.")
@click.option("--stop-return", type=float, metavar="R", help="End when an evaluation has this mean return.")
@click.option(
    "--stop-sampled", type=float, metavar="R", help="End when the last 20 played episodes have this mean."
)
@click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="NAME=VALUE",
    help="Change a setting, such as learning_rate=0.001; repeatable.",
)
@click.option("--settings", is_flag=True, help="Print all settings with what each is for, and end.")
@click.option(
    "--evaluate-every",
    default=5.0,
    show_default=True,
    metavar="S",
    help="Seconds between two evaluations; 0: none.",
)
@click.option("--episodes", default=20, show_default=True, metavar="N", help="Played in each evaluation.")
@click.option(
    "--checkpoint-every",
    default=60.0,
    show_default=True,
    metavar="S",
    help="Seconds between two checkpoints.",
)
@click.option(
    "--videos", default=0, show_default=True, metavar="N", help="Episodes of each evaluation kept as GIFs."
)
@click.option(
    "--resume",
    metavar="RUN",
    help="Go on from the newest checkpoint of a run, with its settings; a run, a folder or a URL.",
)
@click.option("--name", default="", help="The experiment's name; by itself ALGORITHM-ENV.")
@click.option("--storage", default="", metavar="URL", help="Where results go; by itself the folder runs/.")
@click.option("--tensorboard", is_flag=True, help="Serve the curves with TensorBoard, in a role of its own.")
@click.option("--image", default="", help="For Kubernetes: what all roles run in, instead of our images.")
@click.option("--actor-image", default="", help="The same for actors, replay and evaluator alone.")
@click.option(
    "--registry",
    metavar="HOST[/PATH]",
    default=lambda: user_config.load().registry or contract.REGISTRY,
    envvar="CALLSHEET_REGISTRY",
    show_default=f"{contract.REGISTRY}, or `registry` in ~/.config/callsheet/config.toml",
    show_envvar=True,
    help="For Kubernetes: where our images are, a slim one and a learner's with PyTorch.",
)
@click.option("--gpus", default=0, metavar="N", help="GPUs for the learner.")
@click.option(
    "--learner-cpus", default="", metavar="CPUS", help="What the learner asks for, and its threads."
)
@click.option("--actor-cpus", default="", metavar="CPUS", help="The same for each actor.")
@click.option(
    "--replay-shards",
    default=1,
    show_default=True,
    metavar="N",
    help="Processes that hold the replay (dqn, sac).",
)
@click.option("--render", is_flag=True, help="Print the experiment's file instead of running it.")
@click.option("-d", "--detach", is_flag=True, help="Leave it running and give the terminal back.")
@options.on
@options.form("json", "yaml", "name")
def command(
    algorithm: str, render: bool, detach: bool, settings: bool, on: str, form: str | None, **given: Any
) -> int:
    """Train a policy with an ALGORITHM: impala, ppo, dqn, sac, or a class of your own as module:Class.

    It writes an experiment with a learner, actors and an evaluator, runs it and shows it until it ends; --render prints
    that file, which can be edited, kept, and given to `callsheet run -f` or kubectl. Results are where `callsheet run`
    puts them: checkpoints, evaluations, the learning curve. Without a --stop- option it trains until Ctrl-C, which
    writes a checkpoint.

    \b
    callsheet train ppo --env CartPole-v1 --stop-sampled 475
    callsheet train impala --env ALE/Pong-v5 --actors 16 --stop-steps 10000000
    callsheet train sac --env HalfCheetah-v5 --set learning_rate=0.0003
    callsheet train ppo --resume ppo-cartpole-v1
    """
    from callsheet.cli.training import arguments

    training = arguments.training_from(algorithm, on, given)

    from callsheet.cli.training import report
    from callsheet.recipes.training import experiment
    from callsheet.spec.dump import to_yaml

    if settings:
        output.answer(report.settings_table(training))
        return 0
    made = experiment(training, arguments.experiment_options(on, given))
    if render:
        output.answer(to_yaml(made))
        return 0
    from callsheet.plan.load import loaded_from_model

    if on == "local":
        _check_torch(training)
        _check_environment(training)
        _find_our_python()
    if training.stop == type(training.stop)():
        how = "`callsheet stop`" if detach else "Ctrl-C"
        output.say(f"No --stop- option is given: it trains until {how}, and writes a checkpoint then.")
    return launch.launch(
        [loaded_from_model(made)],
        on,
        form,
        detach=detach,
        then=lambda ended: report.report_end(ended, on),
    )


def _check_torch(training: Training) -> None:
    """The learner would find out only after everything has started. A user's own may do without."""
    from callsheet.rl.algorithms import algorithm

    if algorithm(training.algorithm).own is None and find_spec("torch") is None:
        raise UserError(
            "the learner needs PyTorch, which is not installed", fix="pip install 'callsheet[torch]'"
        )


def _check_environment(training: Training) -> None:
    """Refuse here what every role would refuse. A module of the user's is left to the processes that are for it."""
    from callsheet.rl.algorithms import algorithm
    from callsheet.rl.envs import spaces_of
    from callsheet.rl.envs.lookup import is_trusted
    from callsheet.rl.nets.network import resolve

    if is_trusted(training.env):
        settings = algorithm(training.algorithm).settings(training)
        resolve(settings.network, spaces_of(training.env, options=training.options))


def _find_our_python() -> None:
    """The roles of a training are our own programs: `python` is the one that runs this command."""
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
