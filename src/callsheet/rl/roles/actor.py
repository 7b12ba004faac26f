"""The actor: steps its environments with the newest policy and sends the results."""

from __future__ import annotations

import time
from contextlib import closing

from callsheet.metrics.wellknown import Acting
from callsheet.rl import endpoints
from callsheet.rl.acting.policy import Policy, policy_for
from callsheet.rl.acting.rollouts import Rollouts, schema
from callsheet.rl.acting.transitions import Transitions
from callsheet.rl.algorithms import algorithm
from callsheet.rl.envs import Environments, make
from callsheet.rl.envs.base import seed_of
from callsheet.rl.nets.network import resolve, state_size
from callsheet.rl.settings import AlgorithmSettings, ReplaySettings, RolloutSettings, Training
from callsheet.runtime import Context, ParameterReader, ReplayClient, TrajectoryWriter
from callsheet.runtime.stream.packing import FRAME_BYTES

_MAX_FRAMES = 8
"""Most messages in flight to a replay shard."""


def run(context: Context, training: Training) -> None:
    """Play until stopped."""
    chosen = algorithm(training.algorithm)
    config = chosen.settings(training)
    seed = seed_of(training.seed, context.index)
    environments = make(training.env, config.environments, seed=seed, options=training.options)
    try:
        if training.inference == "central":
            _send_remote_rollouts(context, environments, config, training, seed)
            return
        policy = policy_for(environments.spaces, config.network)
        with ParameterReader(context, endpoints.PARAMETERS) as parameters:
            actor = _Actor(context, environments, policy, parameters, training, seed)
            if isinstance(config, ReplaySettings):
                actor.send_transitions(config)
            else:
                actor.send_rollouts(config, in_step=chosen.in_step)
    finally:
        environments.close()


def _ahead(config: AlgorithmSettings) -> int:
    """Rollouts in flight: one, unless the algorithm has a setting for it."""
    return config.ahead if isinstance(config, RolloutSettings) else 1


def _send_remote_rollouts(
    context: Context,
    environments: Environments,
    config: AlgorithmSettings,
    training: Training,
    seed: int,
) -> None:
    """Play with the actions of the policy server."""
    from callsheet.rl.acting.remote_policy import RemotePolicy

    state = state_size(resolve(config.network, environments.spaces))
    policy = RemotePolicy(context, state)
    rollouts = Rollouts(environments, policy, seed, clip_rewards=training.clip_rewards)
    metrics = Acting(context.metrics)
    _follow(metrics, rollouts, environments)
    shape = schema(environments.spaces, config.rollout, config.environments, state=state)
    with TrajectoryWriter(context, endpoints.TRAJECTORIES, shape, ahead=_ahead(config)) as writer:
        try:
            while True:
                with writer.rollout(version=policy.version) as arrays:
                    metrics.steps.add(rollouts.fill(arrays))
        finally:
            policy.close()


def _follow(metrics: Acting, rollouts: Rollouts, environments: Environments) -> None:
    metrics.episodes.follow(lambda: rollouts.episodes)
    metrics.broken.follow(lambda: rollouts.broken)
    metrics.restarts.follow(lambda: environments.restarts)


class _Actor:
    """Environments, and the newest version of the policy."""

    def __init__(
        self,
        context: Context,
        environments: Environments,
        policy: Policy,
        parameters: ParameterReader,
        training: Training,
        seed: int,
    ) -> None:
        self._context = context
        self._environments = environments
        self._policy = policy
        self._parameters = parameters
        self._training = training
        self._seed = seed
        self._version = -1
        self._metrics = Acting(context.metrics)

    def send_rollouts(self, config: AlgorithmSettings, *, in_step: bool) -> None:
        """Send rollouts to the learner; `in_step`: wait for a new policy after each."""
        rollouts = Rollouts(
            self._environments, self._policy, self._seed, clip_rewards=self._training.clip_rewards
        )
        _follow(self._metrics, rollouts, self._environments)
        shape = schema(
            self._environments.spaces,
            config.rollout,
            config.environments,
            state=self._policy.state_size,
            values=in_step,
        )
        ahead = 1 if in_step else _ahead(config)
        with TrajectoryWriter(self._context, endpoints.TRAJECTORIES, shape, ahead=ahead) as writer:
            self._update_policy(wait=True)
            while True:
                with writer.rollout(version=self._version) as arrays:
                    self._metrics.steps.add(rollouts.fill(arrays))
                self._update_policy(wait=in_step)

    def send_transitions(self, config: ReplaySettings) -> None:
        """Send transitions to the replay, which makes us wait if we are too far ahead of the learner, and finished episodes to
        the learner. Actions are random before the first update."""
        from callsheet.rl.roles.episode_reports import EpisodeReporter

        transitions = Transitions(
            self._environments,
            self._policy,
            self._seed,
            steps=config.rollout,
            n=config.n_step,
            gamma=config.gamma,
            epsilon=config.epsilons(actor=self._context.index, actors=self._training.actors),
            clip_rewards=self._training.clip_rewards,
        )
        _follow(self._metrics, transitions.exploring, self._environments)
        # At most one turn's transitions in flight to a shard: with a long queue the policy would be old.
        window = min(_MAX_FRAMES, 1 + transitions.nbytes // FRAME_BYTES)
        with (
            ReplayClient(self._context, endpoints.REPLAY, window=window) as replay,
            closing(EpisodeReporter(self._context)) as reporter,
        ):
            self._update_policy(wait=True)
            while True:
                played = transitions.play(at_random=self._version == 0)
                self._metrics.steps.add(played.steps)
                replay.insert_many(played.items, played.priorities)
                reporter.report(played, self._version)
                self._update_policy()

    def _update_policy(self, *, wait: bool = False) -> None:
        """Switch to the newest version."""
        start = time.monotonic()
        newest = self._parameters.wait() if wait else self._parameters.poll()
        self._metrics.waiting.add(time.monotonic() - start)
        if newest is not None:
            self._version = newest.version
            self._policy.load(newest.arrays)
