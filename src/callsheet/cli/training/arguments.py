"""The options of `callsheet train` as a training and the experiment around it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from callsheet.errors import UserError

if TYPE_CHECKING:
    from callsheet.backends.base import Backend
    from callsheet.recipes.training import RecipeOptions
    from callsheet.rl.settings import Training


def training_from(algorithm: str, backend: Backend, given: dict[str, Any]) -> Training:
    try:
        from callsheet.rl import settings as schema
        from callsheet.rl.algorithms import algorithm as find
        from callsheet.rl.envs.lookup import family_of
    except ModuleNotFoundError as error:
        raise UserError(
            f"training needs {error.name}, which is not installed", fix="pip install 'callsheet[torch]'"
        ) from None
    find(algorithm)
    settings = _nested(_pair(text, "--set") for text in given["sets"])
    env_options = dict(_pair(text, "--env-option") for text in given["env_options"])
    environment, actors, rewards, resume = given["environment"], given["actors"], given["rewards"], ""
    if given["resume"]:
        from callsheet.cli.training.resume import check_resumed, earlier

        resume, before = earlier(given["resume"], backend)
        environment = environment or before.env
        actors = actors if _is_given("actors") else before.actors
        rewards = rewards if _is_given("rewards") else before.rewards
        check_resumed(before, algorithm, environment, actors)
        settings = _merged(before.settings, settings)
        env_options = before.options | env_options
    if not environment:
        raise UserError("a training needs an environment", fix="add one, such as --env CartPole-v1")
    return schema.Training(
        algorithm=algorithm,
        env=environment,
        options=env_options,
        family=family_of(environment),
        actors=actors,
        inference=given["inference"],
        rewards=rewards,
        seed=given["seed"],
        stop=schema.Stop(
            steps=given["stop_steps"],
            seconds=given["stop_seconds"],
            goal=given["stop_return"],
            sampled=given["stop_sampled"],
        ),
        evaluation=schema.Evaluation(
            every=given["evaluate_every"] or 5.0, episodes=given["episodes"], videos=given["videos"]
        ),
        checkpoints=schema.Checkpoints(every=given["checkpoint_every"]),
        resume=resume,
        settings=settings,
    )


def experiment_options(backend: Backend, given: dict[str, Any]) -> RecipeOptions:
    """How the experiment around the training is set up."""
    from callsheet.recipes.images import Images
    from callsheet.recipes.training import RecipeOptions

    return RecipeOptions(
        name=given["name"],
        evaluator=given["evaluate_every"] > 0,
        storage=given["storage"],
        images=Images(
            learner=given["image"],
            actors=given["actor_image"],
            registry=_registry(backend, given["registry"]),
        ),
        gpus=given["gpus"],
        learner_cpus=given["learner_cpus"],
        actor_cpus=given["actor_cpus"],
        replay_shards=given["replay_shards"],
        tensorboard=given["tensorboard"],
    )


def _registry(backend: Backend, registry: str) -> str:
    """Where our images are. A laptop needs none; its file names a registry only if the user gave one."""
    source = click.get_current_context().get_parameter_source("registry")
    return registry if not backend.on_this_machine or source is click.core.ParameterSource.COMMANDLINE else ""


def _is_given(option: str) -> bool:
    """Whether the user set the option, on the command line or in the environment."""
    source = click.get_current_context().get_parameter_source(option)
    return source is not click.core.ParameterSource.DEFAULT


def _merged(base: dict[str, Any], overrides: dict[str, Any]) -> dict[str, Any]:
    """The settings with overrides, which may change single fields of a group."""
    merged = base | overrides
    for name, value in overrides.items():
        if isinstance(value, dict) and isinstance(base.get(name), dict):
            merged[name] = base[name] | value
    return merged


def _pair(text: str, option: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UserError(f"{option} {text} is not NAME=VALUE", fix=f"such as {option} learning_rate=0.001")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _nested(pairs: Any) -> dict[str, Any]:
    """``network.lstm=128`` changes one field of the network."""
    nested: dict[str, Any] = {}
    for name, value in pairs:
        *groups, last = name.split(".")
        place = nested
        for word in groups:
            place = place.setdefault(word, {})
        place[last] = value
    return nested
