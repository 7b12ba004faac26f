"""A cluster comes up and goes down. Down is written so that it works whatever is left: it asks the kernel, not a file."""

from __future__ import annotations

import time

from tools.cluster import addons, build, control, network, node, packages, registry, state, units
from tools.cluster.api import Api, is_ready
from tools.cluster.cgroups import Branch, clusters_with_cgroups
from tools.cluster.errors import ClusterError
from tools.cluster.shell import say, wait_until
from tools.cluster.state import CONTROL, MAX_NODES, Cluster, node_name

READY_WITHIN_S = 120


def up(name: str, nodes: int) -> Cluster:
    """A running cluster with at least this many nodes. One that is half there, after a crash, is made anew."""
    if not 1 <= nodes <= MAX_NODES:
        raise ClusterError(f"a cluster of {nodes} nodes cannot be had", f"ask for 1 to {MAX_NODES}")
    packages.require(packages.CLUSTER)
    build.build()
    with state.lock(name):
        cluster = state.find(name)
        if cluster is None or not is_whole(cluster):
            if cluster is not None or Branch.of(name).exists():
                say(f"cluster {name!r} was left behind in pieces: removing it first")
                _remove(name)
            cluster = _create(name, nodes)
        _grow(cluster, nodes)
        return cluster


def is_whole(cluster: Cluster) -> bool:
    """Whether what should run does run, and the API server answers."""
    there = cluster.complete and units.first_process(cluster, CONTROL) is not None and Api(cluster).ready()
    return there and all(
        units.first_process(cluster, each) is not None
        for each in cluster.nodes
        if each not in cluster.stopped
    )


def _create(name: str, nodes: int) -> Cluster:
    begun = time.monotonic()
    with state.lock(".numbers"):
        cluster = Cluster(name, network.free_number())
        cluster.save()
    control.make_identities(cluster)
    control.start(cluster)
    # The nodes boot while the API server does; what needs it waits for it.
    for number in range(nodes):
        _join(cluster, node_name(number))
    api = Api(cluster)
    try:
        wait_until(api.ready, "the API server", READY_WITHIN_S)
    except ClusterError as error:
        said = units.last_words(cluster, CONTROL, control.API_SERVER)
        raise ClusterError(
            f"{error.message}; it last said: {said}", f"read {cluster.folder}/control/log"
        ) from None
    cluster.ready_file.touch()
    addons.install(api)
    wait_for_nodes(cluster, cluster.nodes)
    wait_until(lambda: _name_server_ready(api), "the name server", READY_WITHIN_S)
    cluster.complete = True
    cluster.save()
    say(f"cluster {name!r}: {nodes} nodes ready in {time.monotonic() - begun:.1f} s")
    return cluster


def _grow(cluster: Cluster, nodes: int) -> None:
    new = [node_name(number) for number in range(nodes) if node_name(number) not in cluster.nodes]
    for each in new:
        _join(cluster, each)
    wait_for_nodes(cluster, new)


def _join(cluster: Cluster, each: str) -> None:
    node.start(cluster, each)
    cluster.nodes.append(each)
    cluster.save()


def add_node(cluster: Cluster) -> str:
    free = (node_name(number) for number in range(MAX_NODES) if node_name(number) not in cluster.nodes)
    new = next(free, None)
    if new is None:
        raise ClusterError(
            f"cluster {cluster.name!r} has all of its {MAX_NODES} nodes", "use `kwok N` for more"
        )
    _join(cluster, new)
    wait_for_nodes(cluster, [new])
    return new


def wait_for_nodes(cluster: Cluster, names: list[str], since: float = 0) -> None:
    """Wait until the nodes say that they are ready, and have said so after the given time."""
    api = Api(cluster)

    def all_ready() -> bool:
        there = api.nodes()
        return all(is_ready(there.get(each), since) for each in names)

    try:
        wait_until(all_ready, f"{', '.join(names)} to be ready", READY_WITHIN_S)
    except ClusterError as error:
        said = units.last_words(cluster, names[-1], "kubelet")
        raise ClusterError(
            f"{error.message}; the kubelet last said: {said}", f"read {cluster.folder}/node-*/log"
        ) from None


def _name_server_ready(api: Api) -> bool:
    found = api.call("GET", "/apis/apps/v1/namespaces/kube-system/deployments/coredns")
    return bool(found.get("status", {}).get("readyReplicas", 0) >= 1)


def down(name: str) -> bool:
    """Remove every trace of a cluster; whether there was one."""
    with state.lock(name):
        there = state.find(name) is not None or (state.ROOT / name).exists() or Branch.of(name).exists()
        _remove(name)
        return there


def _remove(name: str) -> None:
    branch = Branch.of(name)
    branch.kill()
    branch.remove()
    with state.lock(".numbers"):
        state.forget(name)
        network.remove_host_interfaces(keep=network.numbers_in_use())
        if not state.known():
            registry.forget_when_large()


def everywhere() -> list[str]:
    """All clusters of this machine, those of which only pieces are left too."""
    return sorted(set(state.known()) | clusters_with_cgroups())
