"""A training as an experiment: the file that one would write by hand to run the built-in roles."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import msgspec

from callsheet import contract
from callsheet.errors import UserError
from callsheet.recipes.images import Images, choose
from callsheet.rl.algorithms import Algorithm, algorithm
from callsheet.rl.settings import Training
from callsheet.spec.dump import dump

FILE = "train.json"
_LONGEST = 30
"""Letters of a name that is made of an algorithm and an environment."""


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """How a training is to be run; what it learns is in its `Training`."""

    name: str = ""
    evaluator: bool = True
    storage: str = ""
    images: Images = field(default_factory=Images)
    gpus: int = 0
    learner_cpus: str = ""
    actor_cpus: str = ""
    replay_shards: int = 1
    """Processes that hold the replay together, for algorithms that have one."""
    tensorboard: bool = False


def experiment(training: Training, wishes: Wishes) -> str:
    """The experiment as YAML. Every setting is in it: the file says all that the run depends on."""
    if training.actors < 1:
        raise UserError(f"a training needs an actor, not {training.actors}", fix="--actors 2")
    chosen = algorithm(training.algorithm)
    settings = chosen.settings(training)
    whole = msgspec.structs.replace(training, settings=msgspec.to_builtins(settings))
    images = choose(wishes.images, training, settings.network, wishes.gpus)
    spec: dict[str, Any] = {}
    if images["learner"]:
        spec["image"] = images["learner"]
    if wishes.storage:
        spec["storage"] = wishes.storage
    spec["files"] = {FILE: whole.encode()}
    spec["roles"] = [_learner(chosen, wishes), _actor(training, wishes, images["actor"])]
    if chosen.data == "replay":
        spec["roles"].append(_replay(training, wishes, images["replay"]))
    if training.inference == "central":
        spec["roles"].append(_policy(chosen, wishes, images["policy"]))
    if wishes.evaluator:
        spec["roles"].append(_evaluator(images["evaluator"]))
    if wishes.tensorboard:
        spec["roles"].append(_role("tensorboard", "") | {"exposes": [{"name": "tensorboard"}]})
    spec["lifecycle"] = {"success": ["learner"]}
    return dump(
        {
            "apiVersion": contract.API_VERSION,
            "kind": contract.KIND,
            "metadata": {"name": wishes.name or default_name(training)},
            "spec": spec,
        }
    )


def default_name(training: Training) -> str:
    """Such as impala-cartpole-v1."""
    env = training.env.rsplit(":", 1)[-1].rsplit("/", 1)[-1]
    words = re.sub(r"[^a-z0-9]+", "-", f"{training.algorithm}-{env}".lower())
    return words[:_LONGEST].strip("-")


def _role(name: str, cpus: str, image: str = "") -> dict[str, Any]:
    """What all have: a program, threads as many as it may use, and a way back after a failure."""
    found: dict[str, Any] = {"name": name}
    if image:
        found["image"] = image
    found["command"] = ["python", "-m", "callsheet.rl.roles", name, f"{{files.{FILE}}}"]
    threads = str(max(1, int(_cores(cpus)))) if cpus else "1"
    found["env"] = [{"name": "OMP_NUM_THREADS", "value": threads}]
    if cpus:
        found["resources"] = {"requests": {"cpu": cpus}}
    found["restart"] = {"policy": "OnFailure", "limit": 20}
    return found


def _learner(chosen: Algorithm, wishes: Wishes) -> dict[str, Any]:
    found = _role("learner", wishes.learner_cpus)
    data = "trajectories" if chosen.data == "rollouts" else "episodes"
    found["binds"] = [{"name": data}, {"name": "parameters"}, {"name": "evaluations"}]
    if chosen.data == "replay":
        found["connects"] = ["replay"]
    if wishes.gpus:
        found.setdefault("resources", {})["limits"] = {"nvidia.com/gpu": wishes.gpus}
    return found


def _actor(training: Training, wishes: Wishes, image: str) -> dict[str, Any]:
    found = _role("actor", wishes.actor_cpus, image)
    found["replicas"] = training.actors
    if not algorithm(training.algorithm).in_step:
        found["scale"] = {"min": 1, "max": max(64, training.actors)}
    if training.inference == "central":
        found["connects"] = ["trajectories", "policy"]
    elif algorithm(training.algorithm).data == "rollouts":
        found["connects"] = ["trajectories", "parameters"]
    else:
        found["connects"] = ["replay", "episodes", "parameters"]
    return found


def _policy(chosen: Algorithm, wishes: Wishes, image: str) -> dict[str, Any]:
    """One server for all actors. Those that go in step, and those that learn from a replay, choose for themselves."""
    if chosen.in_step or chosen.data != "rollouts":
        raise UserError(f"{chosen.name} has no central inference", fix="use impala, or --inference local")
    found = _role("policy", wishes.learner_cpus, image)
    found["binds"] = [{"name": "policy"}]
    found["connects"] = ["parameters"]
    if wishes.gpus:
        found.setdefault("resources", {})["limits"] = {"nvidia.com/gpu": 1}
    return found


def _replay(training: Training, wishes: Wishes, image: str) -> dict[str, Any]:
    """The replay's own program, told by the algorithm's settings. Every shard has its part of all numbers."""
    config = algorithm(training.algorithm).settings(training)
    shards = wishes.replay_shards
    if not 1 <= shards <= min(config.capacity, config.warmup):
        raise UserError(
            f"{config.capacity:,} transitions cannot be held by {shards} shards", fix="--replay-shards 1"
        )
    alpha = getattr(config, "alpha", None)
    ratio = config.updates_per_step * config.batch
    turn = config.rollout * config.environments * training.actors
    arguments: dict[str, Any] = {"kind": "uniform" if alpha is None else "prioritized"}
    if alpha is not None:
        arguments["alpha"] = alpha
    arguments["items"] = config.capacity // shards
    arguments["bytes"] = config.memory // shards
    arguments["min-size"] = config.warmup // shards
    arguments["samples-per-insert"] = ratio
    # Room for the batches that are asked for ahead, and for what all actors play in one turn.
    arguments["tolerance"] = max(4 * config.batch, 2 * ratio * turn) / shards
    arguments |= {"snapshot-every": training.checkpoints.every, "seed": training.seed}
    found = _role("replay", "", image)
    found["command"] = ["python", "-m", "callsheet.runtime.replay"]
    for name, value in arguments.items():
        found["command"] += [f"--{name}", f"{value:g}" if isinstance(value, float) else str(value)]
    found["replicas"] = shards
    found["binds"] = [{"name": "replay"}]
    return found


def _evaluator(image: str) -> dict[str, Any]:
    found = _role("evaluator", "", image)
    found["connects"] = ["parameters", "evaluations"]
    return found


def _cores(text: str) -> float:
    from callsheet.spec.quantity import parse_quantity

    return float(parse_quantity(text))
