"""What can happen to a cluster, on purpose: nodes that stop, cables that are cut, GPUs that come and go."""

from __future__ import annotations

import time

from tools.cluster import network, node, units
from tools.cluster.api import Api
from tools.cluster.control import API_SERVER, LEADERS
from tools.cluster.errors import ClusterError
from tools.cluster.lifecycle import wait_for_nodes
from tools.cluster.shell import wait_until
from tools.cluster.state import CONTROL, Cluster

GPU = "nvidia.com/gpu"


def _known(cluster: Cluster, name: str) -> str:
    if name not in cluster.nodes:
        raise ClusterError(
            f"cluster {cluster.name!r} has no node {name!r}", f"its nodes: {', '.join(cluster.nodes)}"
        )
    return name


def stop_node(cluster: Cluster, name: str) -> None:
    """Cut a node's power: its programs and pods end at once and nobody is told. Its disk stays."""
    _known(cluster, name)
    if name not in cluster.stopped:
        cluster.stopped.append(name)
        cluster.save()
    units.power_off(cluster, name)


def partition_node(cluster: Cluster, name: str) -> None:
    """Cut a node's cable: everything on it runs on, and nothing reaches it or leaves it."""
    _known(cluster, name)
    units.running(cluster, name)
    network.unplug(units.running(cluster, CONTROL), name)


def stop_api(cluster: Cluster) -> None:
    """Take the API server away; nodes and pods run on.

    The controllers and the scheduler go too: as everywhere, who cannot renew its leadership ends. They begin anew
    with it and see the cluster as it is; had they stayed, each of their watches would come back at a time of its own.
    """
    for part in (API_SERVER, *LEADERS):
        units.off_switch(cluster, CONTROL, part).touch()
    api = Api(cluster)
    wait_until(lambda: not api.ready(), "the API server to go", 20)


def heal(cluster: Cluster) -> list[str]:
    """Undo every fault: start what was stopped, plug in what was cut off. Returns the nodes that were mended."""
    begun = time.time()
    control = units.running(cluster, CONTROL)
    switches = [units.off_switch(cluster, CONTROL, part) for part in (API_SERVER, *LEADERS)]
    api_was_away = switches[0].exists()
    for switch in switches:
        switch.unlink(missing_ok=True)
    mended = []
    for name in cluster.nodes:
        if units.first_process(cluster, name) is None:
            node.start(cluster, name)
            mended.append(name)
        elif network.is_unplugged(control, name):
            network.plug(control, name)
            mended.append(name)
    cluster.stopped.clear()
    cluster.save()
    wait_until(Api(cluster).ready, "the API server", 60)
    # What is known of a node that was not heard of is old: it counts once it has spoken again.
    unheard = cluster.nodes if api_was_away else mended
    wait_for_nodes(cluster, unheard, since=begun)
    wait_for_nodes(cluster, cluster.nodes)
    # A kubelet that starts anew forgets what it was told about its node.
    for name in mended:
        if name in cluster.gpus:
            _advertise(cluster, name, cluster.gpus[name])
    return mended


def set_gpus(cluster: Cluster, name: str, count: int) -> None:
    """Make a node say that it has this many GPUs; the real scheduler believes it."""
    if count < 0:
        raise ClusterError(f"a node cannot have {count} GPUs", "give 0 or more")
    if name not in Api(cluster).nodes():
        _known(cluster, name)
    cluster.gpus[name] = count
    cluster.save()
    _advertise(cluster, name, count)


def _advertise(cluster: Cluster, name: str, count: int) -> None:
    amount = str(count) if count else None
    body = {"status": {field: {GPU: amount} for field in ("capacity", "allocatable")}}
    Api(cluster).call("PATCH", f"/api/v1/nodes/{name}/status", body, "application/merge-patch+json")


def condition(cluster: Cluster, name: str, ready: bool) -> str:
    """One word for a person: what state a node is in, and whose doing it is."""
    control = units.first_process(cluster, CONTROL)
    if units.first_process(cluster, name) is None:
        return "stopped"
    if control and network.is_unplugged(control, name):
        return "partitioned"
    return "Ready" if ready else "NotReady"
