"""The actor: plays its environments with the newest policy and sends what happened."""

from __future__ import annotations

import time
from typing import Any

from callsheet.metrics.wellknown import Acting
from callsheet.rl.acting.policy import Policy, policy_for
from callsheet.rl.acting.rollouts import Rollouts, schema
from callsheet.rl.acting.transitions import Transitions, epsilons
from callsheet.rl.algorithms import Algorithm, algorithm
from callsheet.rl.envs import Environments, make
from callsheet.rl.envs.base import seed_of
from callsheet.rl.nets.network import resolve, state_size
from callsheet.rl.settings import Training
from callsheet.runtime import Context, ParameterReader, ReplayClient, TrajectoryWriter
from callsheet.runtime.stream.packing import FRAME_BYTES

TRAJECTORIES, PARAMETERS, REPLAY = "trajectories", "parameters", "replay"
_FRAMES = 8
"""Messages that may be on their way to a shard, at most."""


def run(context: Context, training: Training) -> None:
    """Play until told to stop."""
    chosen = algorithm(training.algorithm)
    config = chosen.settings(training)
    seed = seed_of(training.seed, context.index)
    environments = make(training.env, config.environments, seed=seed, options=training.options)
    try:
        if training.inference == "central":
            _ask(context, environments, config, seed, signs=training.signs)
            return
        policy = policy_for(environments.spaces, config.network)
        actor = _Actor(context, environments, policy, signs=training.signs)
        with ParameterReader(context, PARAMETERS) as actor.parameters:
            if chosen.data == "rollouts":
                actor.send_rollouts(chosen, config, seed)
            else:
                actor.send_transitions(config, seed, training.actors)
    finally:
        environments.close()


def _ask(context: Context, environments: Environments, config: Any, seed: int, *, signs: bool) -> None:
    """Play as the policy server says."""
    from callsheet.rl.acting.remote_policy import CentralPolicy

    state = state_size(resolve(config.network, environments.spaces))
    policy = CentralPolicy(context, state)
    rollouts = Rollouts(environments, policy, seed, signs=signs)
    metrics = Acting(context.metrics)
    _show(metrics, rollouts, environments)
    shape = schema(environments.spaces, config.rollout, config.environments, state=state)
    with TrajectoryWriter(context, TRAJECTORIES, shape, ahead=getattr(config, "ahead", 1)) as writer:
        try:
            while True:
                with writer.rollout(version=policy.version) as arrays:
                    metrics.steps.add(rollouts.fill(arrays))
        finally:
            policy.close()


def _show(metrics: Acting, rollouts: Rollouts, environments: Environments) -> None:
    metrics.episodes.follow(lambda: rollouts.episodes)
    metrics.broken.follow(lambda: rollouts.broken)
    metrics.restarts.follow(lambda: environments.restarts)


class _Actor:
    """Environments, and the policy that plays them in its newest version."""

    parameters: ParameterReader

    def __init__(self, context: Context, environments: Environments, policy: Policy, *, signs: bool) -> None:
        self._signs = signs
        self._context = context
        self._environments = environments
        self._policy = policy
        self._version = -1
        self._metrics = Acting(context.metrics)

    def send_rollouts(self, chosen: Algorithm, config: Any, seed: int) -> None:
        """To the learner itself; algorithms that go in step wait for its answer to each."""
        rollouts = Rollouts(self._environments, self._policy, seed, signs=self._signs)
        _show(self._metrics, rollouts, self._environments)
        shape = schema(
            self._environments.spaces,
            config.rollout,
            config.environments,
            state=self._policy.state_size,
            values=chosen.in_step,
        )
        ahead = 1 if chosen.in_step else getattr(config, "ahead", 1)
        with TrajectoryWriter(self._context, TRAJECTORIES, shape, ahead=ahead) as writer:
            self._renew(wait=True)
            while True:
                with writer.rollout(version=self._version) as arrays:
                    self._metrics.steps.add(rollouts.fill(arrays))
                self._renew(wait=chosen.in_step)

    def send_transitions(self, config: Any, seed: int, actors: int) -> None:
        """To the replay, which makes us wait when we are too far ahead of the learner; and what episodes brought to the
        learner. Before the first update there is nothing to play by: actions are random."""
        from callsheet.rl.roles.episode_reports import Reporter

        epsilon = None
        if hasattr(config, "epsilon"):
            epsilon = epsilons(
                config.epsilon,
                config.epsilon_spread,
                actor=self._context.index,
                actors=actors,
                count=config.environments,
            )
        transitions = Transitions(
            self._environments,
            self._policy,
            seed,
            steps=config.rollout,
            n=config.n_step,
            gamma=config.gamma,
            epsilon=epsilon,
            signs=self._signs,
        )
        _show(self._metrics, transitions.exploring, self._environments)
        # No more than a turn's transitions on their way to a shard: beside a long queue the policy would grow old.
        window = min(_FRAMES, 1 + transitions.nbytes // FRAME_BYTES)
        with (
            ReplayClient(self._context, REPLAY, window=window) as replay,
            Reporter(self._context) as reporter,
        ):
            self._renew(wait=True)
            while True:
                played = transitions.play(at_random=self._version == 0)
                self._metrics.steps.add(played.steps)
                replay.insert_many(played.items, played.priorities)
                reporter.tell(played, self._version)
                self._renew()

    def _renew(self, *, wait: bool = False) -> None:
        """Play with the newest version from now on."""
        begun = time.monotonic()
        found = self.parameters.wait() if wait else self.parameters.poll()
        self._metrics.waiting.add(time.monotonic() - begun)
        if found is not None:
            self._version = found.version
            self._policy.load(found.arrays)
