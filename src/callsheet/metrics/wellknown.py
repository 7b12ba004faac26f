"""The metrics that Callsheet's own programs have, each with its one name and meaning.

A group belongs to one part of the data plane and is made for one endpoint; two parts of a process that serve the same
endpoint share its metrics. The reference page is made from this file.
"""

from __future__ import annotations

import math
from typing import Any, Final

from callsheet.metrics.definition import COUNTS, Definition
from callsheet.metrics.instruments import Counter, Gauge, Histogram
from callsheet.metrics.process import add_process_metrics, dropped
from callsheet.metrics.registry import Registry

_AT = ("endpoint",)


class _Here:
    """Makes metrics of one endpoint."""

    def __init__(self, registry: Registry, endpoint: str) -> None:
        self._registry = registry
        self._endpoint = endpoint

    def counter(self, name: str, help: str, **more: Any) -> Counter:
        return self._registry.counters(name, help, _AT, **more).of(endpoint=self._endpoint)

    def gauge(self, name: str, help: str, **more: Any) -> Gauge:
        return self._registry.gauges(name, help, _AT, **more).of(endpoint=self._endpoint)

    def histogram(self, name: str, help: str, **more: Any) -> Histogram:
        return self._registry.histograms(name, help, _AT, **more).of(endpoint=self._endpoint)


class Transport:
    """Every connection: what passes, and what goes wrong."""

    def __init__(self, registry: Registry, endpoint: str) -> None:
        here = _Here(registry, endpoint)
        sent = registry.counters(
            "transport_sent", "Bytes sent to peers, by what carried them.", (*_AT, "carrier"), unit="bytes"
        )
        received = registry.counters(
            "transport_received", "Bytes from peers, by what carried them.", (*_AT, "carrier"), unit="bytes"
        )
        self.sent_memory = sent.of(endpoint=endpoint, carrier="memory")
        self.sent_network = sent.of(endpoint=endpoint, carrier="network")
        self.received_memory = received.of(endpoint=endpoint, carrier="memory")
        self.received_network = received.of(endpoint=endpoint, carrier="network")
        self.frames_sent = here.counter("transport_frames_sent", "Frames sent to peers.")
        self.frames_received = here.counter("transport_frames_received", "Frames from peers.")
        self.peers = here.gauge("transport_peers", "Peers that are connected now.", adds_up=True)
        self.reconnects = here.counter(
            "transport_reconnects", "Connections that were made anew after one was lost."
        )
        self.refusals = here.counter(
            "transport_refusals",
            "Peers and messages that were refused: another schema, run or version, or malformed.",
        )
        self.keys_refused = registry.counter(
            "transport_keys_refused", "Connections to this process that did not have the run's key."
        )


class TrajectoryWriter:
    """An actor's side of trajectories."""

    def __init__(self, registry: Registry, endpoint: str) -> None:
        here = _Here(registry, endpoint)
        self.items = here.counter(
            "trajectories_written", "Rollouts handed to the learner's side.", shown="rollouts"
        )
        self.bytes = here.counter(
            "trajectories_written", "Bytes of the rollouts that were written.", unit="bytes"
        )
        self.wait_seconds = here.counter(
            "trajectories_writer_wait",
            "Time that writing waited because the reader was slow.",
            unit="seconds",
            shown="waiting",
        )
        self.unacknowledged = here.gauge(
            "trajectories_unacknowledged",
            "Rollouts written and not yet known to be received.",
            adds_up=True,
        )
        self.resent = here.counter("trajectories_resent", "Rollouts sent again after a connection was lost.")
        self.dropped = here.counter(
            "trajectories_dropped", "Rollouts that were given up because no reader took them before the end."
        )


class TrajectoryReader:
    """A learner's side of trajectories."""

    def __init__(self, registry: Registry, endpoint: str) -> None:
        here = _Here(registry, endpoint)
        self.items = here.counter(
            "trajectories_read", "Rollouts received, duplicates not counted.", shown="rollouts"
        )
        self.bytes = here.counter(
            "trajectories_read", "Bytes of the rollouts that were received.", unit="bytes"
        )
        self.wait_seconds = here.counter(
            "trajectories_reader_wait",
            "Time that the reader waited for rollouts.",
            unit="seconds",
            shown="waiting",
        )
        self.queue = here.gauge(
            "trajectories_queue", "Rollouts received and not yet taken.", shown="queue", adds_up=True
        )
        self.writers = here.gauge("trajectories_writers", "Writers that are connected now.", adds_up=True)
        self.duplicates = here.counter(
            "trajectories_duplicates", "Rollouts that came twice and were dropped."
        )
        self.missing = here.counter(
            "trajectories_missing", "Rollouts that a writer's numbering says were never received."
        )
        self.stale = here.counter(
            "trajectories_stale",
            "Rollouts masked because their policy was older than max_policy_lag.",
        )
        self.lag = here.histogram(
            "trajectories_policy_lag",
            "How many versions older than the newest the policy was that made each rollout.",
            buckets=COUNTS,
            shown="lag",
        )


class ParameterPublisher:
    """The side that publishes parameters."""

    def __init__(self, registry: Registry, endpoint: str) -> None:
        here = _Here(registry, endpoint)
        self.publishes = here.counter("parameters_published", "Snapshots of parameters that were published.")
        self.publish_seconds = here.histogram(
            "parameters_publish", "Time of one call of publish().", unit="seconds"
        )
        self.version = here.gauge(
            "parameters_version", "The newest version that was published or read.", shown="version"
        )
        self.sent_bytes = here.counter(
            "parameters_sent", "Bytes of parameters sent to readers.", unit="bytes"
        )
        self.readers = here.gauge("parameters_readers", "Readers that are connected now.", adds_up=True)


class ParameterReader:
    """The side that reads parameters."""

    def __init__(self, registry: Registry, endpoint: str) -> None:
        here = _Here(registry, endpoint)
        self.reads = here.counter("parameters_read", "Snapshots of parameters that were read.")
        self.version = here.gauge(
            "parameters_version", "The newest version that was published or read.", shown="version"
        )
        self.received_bytes = here.counter(
            "parameters_received", "Bytes of parameters that were read.", unit="bytes"
        )


class ReplayServer:
    """A shard of a replay."""

    def __init__(self, registry: Registry, endpoint: str) -> None:
        here = _Here(registry, endpoint)
        self.items = here.gauge("replay_items", "Items that the shard holds.", shown="items", adds_up=True)
        self.bytes = here.gauge(
            "replay_held", "Bytes of the items that the shard holds.", unit="bytes", adds_up=True
        )
        self.inserts = here.counter("replay_inserts", "Items that were inserted.", shown="inserts")
        self.samples = here.counter("replay_samples", "Items that were sampled.", shown="samples")
        self.updates = here.counter("replay_updates", "Priorities that were changed.")
        self.evictions = here.counter("replay_evictions", "Items that made room for newer ones.")
        self.duplicates = here.counter("replay_duplicates", "Inserts that came twice and were dropped.")
        self.samples_per_insert = here.gauge(
            "replay_samples_per_insert",
            "Samples for each insert so far, which the limiter holds in bounds.",
        )
        self.insert_wait_seconds = here.counter(
            "replay_insert_wait", "Time that the limiter held inserts back.", unit="seconds"
        )
        self.sample_wait_seconds = here.counter(
            "replay_sample_wait", "Time that the limiter held samples back.", unit="seconds"
        )
        self.snapshots = here.counter("replay_snapshots", "Snapshots that are durable.")
        self.snapshot_seconds = here.histogram("replay_snapshot", "Time of one snapshot.", unit="seconds")
        self.restored = here.counter("replay_restored", "Items taken from a snapshot at the start.")


class ReplayClient:
    """A program that inserts into a replay or samples from it."""

    def __init__(self, registry: Registry, endpoint: str) -> None:
        here = _Here(registry, endpoint)
        self.inserted = here.counter(
            "replay_client_inserted", "Items that this process inserted.", shown="inserts"
        )
        self.sampled = here.counter(
            "replay_client_sampled", "Items that this process sampled.", shown="samples"
        )
        self.wait_seconds = here.counter(
            "replay_client_wait",
            "Time that this process waited for the replay.",
            unit="seconds",
            shown="waiting",
        )
        self.retries = here.counter("replay_client_retries", "Requests that were sent again.")


class PolicyServer:
    """The side that answers observations with actions."""

    def __init__(self, registry: Registry, endpoint: str) -> None:
        here = _Here(registry, endpoint)
        self.requests = here.counter("policy_requests", "Observations that were answered.", shown="requests")
        self.batch_size = here.histogram(
            "policy_batch_size", "Observations in one call of the policy.", buckets=COUNTS, shown="batch"
        )
        self.wait_seconds = here.histogram(
            "policy_wait", "Time that an observation waited for its batch.", unit="seconds"
        )
        self.call_seconds = here.histogram("policy_call", "Time of one call of the policy.", unit="seconds")
        self.clients = here.gauge("policy_clients", "Clients that are connected now.", adds_up=True)
        self.version = here.gauge("policy_version", "The version of the policy that answers.")


class PolicyClient:
    """The side that asks for actions."""

    def __init__(self, registry: Registry, endpoint: str) -> None:
        here = _Here(registry, endpoint)
        self.requests = here.counter("policy_client_requests", "Observations that were sent to the policy.")
        self.wait_seconds = here.histogram(
            "policy_client_wait", "Time from an observation to its action.", unit="seconds"
        )
        self.retries = here.counter("policy_client_retries", "Requests that were sent again.")


class Acting:
    """A program that steps environments."""

    def __init__(self, registry: Registry) -> None:
        self.steps = registry.counter("acting_steps", "Environment steps that count.", shown="steps")
        self.episodes = registry.counter("acting_episodes", "Episodes that ended.")
        self.restarts = registry.counter(
            "acting_simulator_restarts", "Simulators that died or hung and were started anew."
        )
        self.broken = registry.counter(
            "acting_broken_episodes", "Episodes dropped because their simulator died."
        )
        self.waiting = registry.counter(
            "acting_parameters_wait", "Time spent waiting for parameters.", unit="seconds"
        )


class Learning:
    """A program that learns."""

    def __init__(self, registry: Registry) -> None:
        self.done = registry.gauge(
            "learning_done_steps", "Environment steps learned from, in all attempts.", shown="steps"
        )
        self.steps = registry.counter(
            "learning_steps", "Environment steps learned from, by this process.", shown="speed"
        )
        self.updates = registry.counter("learning_updates", "Updates of the parameters.")
        self.update_seconds = registry.histogram("learning_update", "Time of one update.", unit="seconds")
        self.loss = registry.gauge("learning_loss", "The newest loss.")
        self.episode_return = registry.gauge(
            "learning_return", "Mean return of the last 20 episodes that actors played.", shown="return"
        )
        self.left = registry.gauge(
            "learning_left",
            "Time until the end, where `stop.steps` or `stop.seconds` tells; else NaN.",
            unit="seconds",
            shown="left",
        )
        self.evaluation = registry.gauge(
            "learning_evaluation", "Mean return of the newest evaluation.", shown="evaluation"
        )
        self.staleness = registry.gauge(
            "learning_staleness", "Mean age of the newest batch's policy, in updates.", shown="lag"
        )
        self.hunger = registry.gauge(
            "learning_hunger",
            "Part of the time that the learner waited for data, lately.",
            unit="ratio",
            shown="hunger",
        )
        self.checkpoint_steps = registry.gauge("learning_checkpoint_steps", "Steps in the newest checkpoint.")
        self.checkpoint_bytes = registry.gauge(
            "learning_checkpoint", "Size of the newest checkpoint.", unit="bytes"
        )
        self.checkpoint_seconds = registry.histogram(
            "learning_checkpoint", "Time of one checkpoint.", unit="seconds"
        )
        self.checkpoint_failures = registry.counter(
            "learning_checkpoint_failures", "Times that results could not be stored."
        )
        for unknown in (
            self.loss,
            self.episode_return,
            self.evaluation,
            self.staleness,
            self.hunger,
            self.left,
        ):
            unknown.set(math.nan)  # until there is one: 0 would be a number like others


BY_ENDPOINT: Final = (
    Transport,
    TrajectoryWriter,
    TrajectoryReader,
    ParameterPublisher,
    ParameterReader,
    ReplayServer,
    ReplayClient,
    PolicyServer,
    PolicyClient,
)


def groups() -> dict[str, list[Definition]]:
    """Every well-known metric by its group's description."""
    found: dict[str, list[Definition]] = {}
    for endpoint_group in BY_ENDPOINT:
        registry = Registry()
        endpoint_group(registry, "trajectories")
        found[str(endpoint_group.__doc__)] = registry.definitions()
    for group in (Acting, Learning):
        registry = Registry()
        group(registry)
        found[str(group.__doc__)] = registry.definitions()
    registry = Registry()
    add_process_metrics(registry)
    dropped(registry)
    found["Every process that exports."] = registry.definitions()
    return found
