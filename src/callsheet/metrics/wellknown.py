"""The metrics of Callsheet's own programs, in groups.

The data plane has one group per endpoint; parts of a process that use the same endpoint share it. `make docs` generates the
reference page from this file.
"""

from __future__ import annotations

import math
from typing import Any, Final

from callsheet.metrics.definition import COUNTS, Definition
from callsheet.metrics.instruments import Counter, Gauge, Histogram
from callsheet.metrics.process import add_process_metrics, dropped
from callsheet.metrics.registry import Registry

_AT = ("endpoint",)


class _EndpointMetrics:
    """Makes metrics with the label `endpoint`."""

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
    """Every connection."""

    def __init__(self, registry: Registry, endpoint: str) -> None:
        make = _EndpointMetrics(registry, endpoint)
        sent = registry.counters(
            "transport_sent", "Bytes sent to peers, by carrier.", (*_AT, "carrier"), unit="bytes"
        )
        received = registry.counters(
            "transport_received", "Bytes received from peers, by carrier.", (*_AT, "carrier"), unit="bytes"
        )
        self.sent_memory = sent.of(endpoint=endpoint, carrier="memory")
        self.sent_network = sent.of(endpoint=endpoint, carrier="network")
        self.received_memory = received.of(endpoint=endpoint, carrier="memory")
        self.received_network = received.of(endpoint=endpoint, carrier="network")
        self.frames_sent = make.counter("transport_frames_sent", "Frames sent to peers.")
        self.frames_received = make.counter("transport_frames_received", "Frames received from peers.")
        self.peers = make.gauge("transport_peers", "Connected peers.", adds_up=True)
        self.reconnects = make.counter("transport_reconnects", "Reconnects after a lost connection.")
        self.refusals = make.counter(
            "transport_refusals",
            "Peers and messages that were refused: wrong schema, run or version, or malformed.",
        )
        self.keys_refused = registry.counter(
            "transport_keys_refused", "Connections to this process without the run's key."
        )


class TrajectoryWriter:
    """Trajectory writers."""

    def __init__(self, registry: Registry, endpoint: str) -> None:
        make = _EndpointMetrics(registry, endpoint)
        self.items = make.counter("trajectories_written", "Rollouts written.", shown="rollouts")
        self.bytes = make.counter("trajectories_written", "Bytes of rollouts written.", unit="bytes")
        self.wait_seconds = make.counter(
            "trajectories_writer_wait",
            "Time that writers waited for a slow reader.",
            unit="seconds",
            shown="waiting",
        )
        self.unacknowledged = make.gauge(
            "trajectories_unacknowledged",
            "Rollouts written but not yet acknowledged.",
            adds_up=True,
        )
        self.resent = make.counter("trajectories_resent", "Rollouts resent after a lost connection.")
        self.dropped = make.counter(
            "trajectories_dropped", "Rollouts dropped because no reader took them before the end."
        )


class TrajectoryReader:
    """Trajectory readers."""

    def __init__(self, registry: Registry, endpoint: str) -> None:
        make = _EndpointMetrics(registry, endpoint)
        self.items = make.counter(
            "trajectories_read", "Rollouts received, without duplicates.", shown="rollouts"
        )
        self.bytes = make.counter("trajectories_read", "Bytes of rollouts received.", unit="bytes")
        self.wait_seconds = make.counter(
            "trajectories_reader_wait",
            "Time the reader waited for rollouts.",
            unit="seconds",
            shown="waiting",
        )
        self.queue = make.gauge(
            "trajectories_queue", "Rollouts received but not yet read.", shown="queue", adds_up=True
        )
        self.writers = make.gauge("trajectories_writers", "Connected writers.", adds_up=True)
        self.duplicates = make.counter("trajectories_duplicates", "Duplicate rollouts that were dropped.")
        self.missing = make.counter("trajectories_missing", "Gaps in the writers' sequence numbers.")
        self.stale = make.counter(
            "trajectories_stale",
            "Rollouts masked because their policy was older than max_policy_lag.",
        )
        self.lag = make.histogram(
            "trajectories_policy_lag",
            "Versions between the policy that produced a rollout and the newest one.",
            buckets=COUNTS,
            shown="lag",
        )


class ParameterPublisher:
    """Parameter servers."""

    def __init__(self, registry: Registry, endpoint: str) -> None:
        make = _EndpointMetrics(registry, endpoint)
        self.publishes = make.counter("parameters_published", "Parameter snapshots published.")
        self.publish_seconds = make.histogram(
            "parameters_publish", "Duration of a publish() call.", unit="seconds"
        )
        self.version = make.gauge(
            "parameters_version", "The newest version published or read.", shown="version"
        )
        self.sent_bytes = make.counter(
            "parameters_sent", "Bytes of parameters sent to readers.", unit="bytes"
        )
        self.readers = make.gauge("parameters_readers", "Connected readers.", adds_up=True)


class ParameterReader:
    """Parameter readers."""

    def __init__(self, registry: Registry, endpoint: str) -> None:
        make = _EndpointMetrics(registry, endpoint)
        self.reads = make.counter("parameters_read", "Parameter snapshots read.")
        self.version = make.gauge(
            "parameters_version", "The newest version published or read.", shown="version"
        )
        self.received_bytes = make.counter("parameters_received", "Bytes of parameters read.", unit="bytes")


class ReplayServer:
    """Replay servers."""

    def __init__(self, registry: Registry, endpoint: str) -> None:
        make = _EndpointMetrics(registry, endpoint)
        self.items = make.gauge("replay_items", "Items in the shard.", shown="items", adds_up=True)
        self.bytes = make.gauge("replay_held", "Bytes of the items in the shard.", unit="bytes", adds_up=True)
        self.inserts = make.counter("replay_inserts", "Items inserted.", shown="inserts")
        self.samples = make.counter("replay_samples", "Items sampled.", shown="samples")
        self.updates = make.counter("replay_updates", "Priorities updated.")
        self.evictions = make.counter("replay_evictions", "Items evicted to make room for newer ones.")
        self.duplicates = make.counter("replay_duplicates", "Duplicate inserts that were dropped.")
        self.samples_per_insert = make.gauge(
            "replay_samples_per_insert",
            "Samples per insert so far; the limiter keeps it within bounds.",
        )
        self.insert_wait_seconds = make.counter(
            "replay_insert_wait", "Time that the limiter delayed inserts.", unit="seconds"
        )
        self.sample_wait_seconds = make.counter(
            "replay_sample_wait", "Time that the limiter delayed samples.", unit="seconds"
        )
        self.snapshots = make.counter("replay_snapshots", "Snapshots written.")
        self.snapshot_seconds = make.histogram("replay_snapshot", "Duration of a snapshot.", unit="seconds")
        self.restored = make.counter("replay_restored", "Items restored from a snapshot at the start.")


class ReplayClient:
    """Replay clients."""

    def __init__(self, registry: Registry, endpoint: str) -> None:
        make = _EndpointMetrics(registry, endpoint)
        self.inserted = make.counter(
            "replay_client_inserted", "Items inserted by this process.", shown="inserts"
        )
        self.sampled = make.counter(
            "replay_client_sampled", "Items sampled by this process.", shown="samples"
        )
        self.wait_seconds = make.counter(
            "replay_client_wait",
            "Time this process waited for the replay.",
            unit="seconds",
            shown="waiting",
        )
        self.retries = make.counter("replay_client_retries", "Requests resent.")


class PolicyServer:
    """Policy servers."""

    def __init__(self, registry: Registry, endpoint: str) -> None:
        make = _EndpointMetrics(registry, endpoint)
        self.requests = make.counter("policy_requests", "Observations answered.", shown="requests")
        self.batch_size = make.histogram(
            "policy_batch_size", "Observations per policy call.", buckets=COUNTS, shown="batch"
        )
        self.wait_seconds = make.histogram(
            "policy_wait", "Time an observation waited for its batch.", unit="seconds"
        )
        self.call_seconds = make.histogram("policy_call", "Duration of a policy call.", unit="seconds")
        self.clients = make.gauge("policy_clients", "Connected clients.", adds_up=True)
        self.version = make.gauge("policy_version", "Version of the policy.")


class PolicyClient:
    """Policy clients."""

    def __init__(self, registry: Registry, endpoint: str) -> None:
        make = _EndpointMetrics(registry, endpoint)
        self.requests = make.counter("policy_client_requests", "Observations sent to the policy.")
        self.wait_seconds = make.histogram(
            "policy_client_wait",
            "Time between sending an observation and receiving its action.",
            unit="seconds",
        )
        self.retries = make.counter("policy_client_retries", "Requests resent.")


class Acting:
    """Actors."""

    def __init__(self, registry: Registry) -> None:
        self.steps = registry.counter("acting_steps", "Valid environment steps.", shown="steps")
        self.episodes = registry.counter("acting_episodes", "Episodes finished.")
        self.restarts = registry.counter(
            "acting_simulator_restarts", "Simulators restarted because they died or hung."
        )
        self.broken = registry.counter(
            "acting_broken_episodes", "Episodes dropped because their simulator died."
        )
        self.waiting = registry.counter(
            "acting_parameters_wait", "Time spent waiting for parameters.", unit="seconds"
        )


class Learning:
    """Learners."""

    def __init__(self, registry: Registry) -> None:
        self.done = registry.gauge(
            "learning_done_steps", "Environment steps learned from, over all attempts.", shown="steps"
        )
        self.steps = registry.counter(
            "learning_steps", "Environment steps learned from by this process.", shown="speed"
        )
        self.updates = registry.counter("learning_updates", "Parameter updates.")
        self.update_seconds = registry.histogram("learning_update", "Duration of an update.", unit="seconds")
        self.loss = registry.gauge("learning_loss", "Latest loss.")
        self.episode_return = registry.gauge(
            "learning_return", "Mean return of the last 20 episodes that actors played.", shown="return"
        )
        self.left = registry.gauge(
            "learning_left",
            "Estimated time left, if `stop.steps` or `stop.seconds` is set; otherwise NaN.",
            unit="seconds",
            shown="left",
        )
        self.evaluation = registry.gauge(
            "learning_evaluation", "Mean return of the latest evaluation.", shown="evaluation"
        )
        self.staleness = registry.gauge(
            "learning_staleness", "Mean age of the latest batch's policy, in updates.", shown="lag"
        )
        self.hunger = registry.gauge(
            "learning_hunger",
            "Recent share of time that the learner waited for data.",
            unit="ratio",
            shown="hunger",
        )
        self.checkpoint_steps = registry.gauge(
            "learning_checkpoint_steps", "Environment steps at the latest checkpoint."
        )
        self.checkpoint_bytes = registry.gauge(
            "learning_checkpoint", "Size of the latest checkpoint.", unit="bytes"
        )
        self.checkpoint_seconds = registry.histogram(
            "learning_checkpoint", "Duration of a checkpoint.", unit="seconds"
        )
        self.checkpoint_failures = registry.counter(
            "learning_checkpoint_failures", "Failed attempts to store results."
        )
        for unknown in (
            self.loss,
            self.episode_return,
            self.evaluation,
            self.staleness,
            self.hunger,
            self.left,
        ):
            unknown.set(math.nan)  # until there is a value; 0 would look like one


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
PER_PROCESS: Final = (Acting, Learning)


def groups() -> dict[str, list[Definition]]:
    """Every well-known metric, by the description of its group."""
    by_group: dict[str, list[Definition]] = {}
    for endpoint_group in BY_ENDPOINT:
        registry = Registry()
        endpoint_group(registry, "trajectories")
        by_group[str(endpoint_group.__doc__)] = registry.definitions()
    for group in PER_PROCESS:
        registry = Registry()
        group(registry)
        by_group[str(group.__doc__)] = registry.definitions()
    registry = Registry()
    add_process_metrics(registry)
    dropped(registry)
    by_group["Every process with an exporter."] = registry.definitions()
    return by_group
