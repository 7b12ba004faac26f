"""A training as an experiment: the one that you would write by hand to run the built-in roles."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import msgspec

from callsheet import contract
from callsheet.errors import UserError
from callsheet.recipes.images import Images, choose_images
from callsheet.rl import endpoints
from callsheet.rl.algorithms import Algorithm, algorithm
from callsheet.rl.settings import PrioritizedReplaySettings, ReplaySettings, Training
from callsheet.spec.experiment import (
    Bind,
    Experiment,
    ExperimentSpec,
    Expose,
    Lifecycle,
    Metadata,
    Restart,
    Role,
    Scale,
)
from callsheet.spec.kubernetes import EnvVar, ResourceRequirements
from callsheet.spec.quantity import parse_quantity

FILE = "train.json"
_LONGEST = 30
"""Letters of a name that is made of an algorithm and an environment."""


@dataclass(frozen=True, kw_only=True)
class RecipeOptions:
    """How a training is run; what it learns is in its `Training`."""

    name: str = ""
    evaluator: bool = True
    storage: str = ""
    images: Images = field(default_factory=Images)
    gpus: int = 0
    learner_cpus: str = ""
    actor_cpus: str = ""
    replay_shards: int = 1
    """Processes that share the replay, for algorithms that have one."""
    tensorboard: bool = False


def experiment(training: Training, options: RecipeOptions) -> Experiment:
    """The experiment. Every setting is in it: the file says everything that the run depends on."""
    if training.actors < 1:
        raise UserError(f"a training needs an actor, not {training.actors}", fix="--actors 2")
    chosen = algorithm(training.algorithm)
    settings = chosen.settings(training)
    whole = msgspec.structs.replace(training, settings=msgspec.to_builtins(settings))
    images = choose_images(options.images, training, settings.network, options.gpus)
    roles = [_learner(chosen, options), _actor(training, options, images["actor"])]
    if chosen.data == "replay":
        roles.append(_replay(training, options, images["replay"]))
    if training.inference == "central":
        roles.append(_policy(chosen, options, images["policy"]))
    if options.evaluator:
        roles.append(
            _role(
                "evaluator", image=images["evaluator"], connects=[endpoints.PARAMETERS, endpoints.EVALUATIONS]
            )
        )
    if options.tensorboard:
        roles.append(_role("tensorboard", exposes=[Expose(name=endpoints.TENSORBOARD)]))
    given: dict[str, Any] = {"image": images["learner"], "storage": options.storage}
    spec = ExperimentSpec(
        **{key: value for key, value in given.items() if value},
        files={FILE: whole.encode()},
        roles=roles,
        lifecycle=Lifecycle(success=["learner"]),
    )
    return Experiment(metadata=Metadata(name=options.name or default_name(training)), spec=spec)


def default_name(training: Training) -> str:
    """Such as impala-cartpole-v1."""
    env = training.env.rsplit(":", 1)[-1].rsplit("/", 1)[-1]
    words = re.sub(r"[^a-z0-9]+", "-", f"{training.algorithm}-{env}".lower())
    return words[:_LONGEST].strip("-")


def _role(name: str, *, cpus: str = "", gpus: int = 0, image: str = "", **fields: Any) -> Role:
    """What all roles have: a program, as many threads as it may use, and restarts after a failure."""
    given = {
        "image": image,
        "command": ["python", "-m", "callsheet.rl.roles", name, f"{{files.{FILE}}}"],
        "env": [EnvVar(name="OMP_NUM_THREADS", value=str(max(1, int(_cores(cpus)))))],
        "resources": _resources(cpus, gpus),
        "restart": Restart(policy="OnFailure", limit=20),
    }
    return Role(name=name, **({key: value for key, value in given.items() if value} | fields))


def _resources(cpus: str, gpus: int) -> ResourceRequirements | None:
    given = {
        "requests": {"cpu": cpus} if cpus else {},
        "limits": {contract.GPU_RESOURCE: gpus} if gpus else {},
    }
    given = {key: value for key, value in given.items() if value}
    return ResourceRequirements.model_validate(given) if given else None


def _cores(cpus: str) -> float:
    try:
        return float(parse_quantity(cpus or "1"))
    except ValueError:
        raise UserError(f"{cpus!r} is not a number of CPUs", fix="write 4, 1.5 or 500m") from None


def _learner(chosen: Algorithm, options: RecipeOptions) -> Role:
    data = endpoints.TRAJECTORIES if chosen.data == "rollouts" else endpoints.EPISODES
    fields: dict[str, Any] = {
        "binds": [Bind(name=name) for name in (data, endpoints.PARAMETERS, endpoints.EVALUATIONS)]
    }
    if chosen.data == "replay":
        fields["connects"] = [endpoints.REPLAY]
    return _role("learner", cpus=options.learner_cpus, gpus=options.gpus, **fields)


def _actor(training: Training, options: RecipeOptions, image: str) -> Role:
    chosen = algorithm(training.algorithm)
    if training.inference == "central":
        connects = [endpoints.TRAJECTORIES, endpoints.POLICY]
    elif chosen.data == "rollouts":
        connects = [endpoints.TRAJECTORIES, endpoints.PARAMETERS]
    else:
        connects = [endpoints.REPLAY, endpoints.EPISODES, endpoints.PARAMETERS]
    fields: dict[str, Any] = {"replicas": training.actors, "connects": connects}
    if not chosen.in_step:
        fields["scale"] = Scale(min=1, max=max(64, training.actors))
    return _role("actor", cpus=options.actor_cpus, image=image, **fields)


def _policy(chosen: Algorithm, options: RecipeOptions, image: str) -> Role:
    """One server for all actors. Those that go in step, and those that learn from a replay, choose for themselves."""
    if chosen.in_step or chosen.data != "rollouts":
        raise UserError(f"{chosen.name} has no central inference", fix="use impala, or --inference local")
    binds, gpus = [Bind(name=endpoints.POLICY)], 1 if options.gpus else 0
    return _role(
        "policy",
        cpus=options.learner_cpus,
        gpus=gpus,
        image=image,
        binds=binds,
        connects=[endpoints.PARAMETERS],
    )


def _replay(training: Training, options: RecipeOptions, image: str) -> Role:
    """The replay's own program, with the algorithm's settings. Every shard holds its share."""
    config = algorithm(training.algorithm).settings(training)
    assert isinstance(config, ReplaySettings)
    shards = options.replay_shards
    if not 1 <= shards <= min(config.capacity, config.warmup):
        raise UserError(
            f"{config.capacity:,} transitions cannot be held by {shards} shards", fix="--replay-shards 1"
        )
    ratio = config.updates_per_step * config.batch
    turn = config.rollout * config.environments * training.actors
    arguments: dict[str, Any] = {"kind": "uniform"}
    if isinstance(config, PrioritizedReplaySettings):
        arguments = {"kind": "prioritized", "alpha": config.alpha}
    arguments["items"] = config.capacity // shards
    arguments["bytes"] = config.memory // shards
    arguments["min-size"] = config.warmup // shards
    arguments["samples-per-insert"] = ratio
    # Room for the batches that are asked for ahead, and for what all actors play in one turn.
    arguments["tolerance"] = max(4 * config.batch, 2 * ratio * turn) / shards
    arguments |= {"snapshot-every": training.checkpoints.every, "seed": training.seed}
    command = ["python", "-m", "callsheet.runtime.replay"]
    for name, value in arguments.items():
        command += [f"--{name}", f"{value:g}" if isinstance(value, float) else str(value)]
    return _role(
        "replay",
        image=image,
        command=command,
        replicas=shards,
        binds=[Bind(name=endpoints.REPLAY)],
        restart=Restart(policy="Always", limit=20),
    )
