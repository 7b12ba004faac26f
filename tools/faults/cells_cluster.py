"""The cells of the API server and of nodes, on a cluster that may be hurt."""

from __future__ import annotations

from tools.faults.matrix import Cell, Key

_CLUSTER = "tests/cluster/"
_OUTAGE = (
    f"{_CLUSTER}test_backend_faults.py::test_a_run_and_its_readers_live_through_an_api_server_that_is_away"
)
_CUT_OFF = f"{_CLUSTER}test_backend_faults.py::test_a_node_that_is_cut_off_is_told_and_its_replicas_are_back_when_it_is"
_PROXIED = f"{_CLUSTER}test_proxied_faults.py::test_an_attached_client_shows_every_line_through_a_network_that_is_hurt"
_FROZEN = f"{_CLUSTER}test_proxied_faults.py::test_a_run_and_its_client_live_through_an_api_server_that_stands_still"
_POWER = f"{_CLUSTER}test_faults.py::test_a_stopped_node_is_noticed_and_comes_back_with_its_pods"


def cells() -> dict[Key, Cell]:
    """Of both."""
    return {(fault, "API server"): cell for fault, cell in _api_server().items()} | {
        (fault, "node"): cell for fault, cell in _node().items()
    }


def _api_server() -> dict[str, Cell]:
    lines = "The run continues, and an attached client shows every line once and in order."
    own = "The disk of the API server and of etcd is its operator's: from here it is a server that is away. See kill -9."
    store = "It does not use the run's store."
    client = Cell(lines, tests=(_PROXIED,))
    return {
        "kill": Cell(f"Away for 20 s: {lines[0].lower()}{lines[1:]}", tests=(_OUTAGE,)),
        "stop": Cell(lines, tests=(_FROZEN,)),
        "lease": Cell(
            "Controllers that lost their leadership start over and see the cluster as it is.",
            tests=(
                f"{_CLUSTER}test_faults.py::"
                "test_controllers_begin_anew_after_an_outage_and_know_the_cluster_as_it_is",
            ),
        ),
        "slow": client,
        "cut": client,
        "one-way": client,
        "full-disk": Cell(why_not=own),
        "read-only": Cell(why_not=own),
        **{
            fault: Cell(why_not=store)
            for fault in ("s3-500", "s3-503", "s3-slow", "s3-never", "s3-multipart")
        },
        "clock": Cell(
            why_not="Nothing of ours compares its clock with another: ages are counted where they are shown."
        ),
        "memory": Cell("As with kill -9, which is what the kernel sends.", tests=(_OUTAGE,)),
        "key": Cell(
            "The cluster's own authority counts; a server that it has not signed is not spoken to.",
            tests=(
                f"{_CLUSTER}test_backend_rights.py::"
                "test_the_clusters_own_authority_counts_whatever_the_environment_says",
            ),
        ),
        "corrupt": client,
        "oversize": Cell(
            "A folder that does not fit into ConfigMaps is refused before anything is sent, with its biggest files.",
            tests=(
                "tests/unit/test_kubernetes_render.py::test_a_folder_that_is_too_large_names_its_biggest_files",
            ),
        ),
        "schema": Cell(
            "The custom resource is accepted, and what it does not allow is refused, by a real API server.",
            tests=(f"{_CLUSTER}test_crd_cluster.py",),
        ),
        "stalled": Cell(why_not=store),
    }


def _node() -> dict[str, Cell]:
    told = "Status says that the node does not answer; its replicas are back when it is, and no restart is counted."
    process = "Faults of connections are those of the processes on it: see the columns of the data plane."
    disk = "A kubelet evicts pods when its disk is full; an evicted replica comes back and counts no failure."
    store = "A node does not use the store: the processes on it do."
    return {
        "kill": Cell("It is noticed, and its pods run again when it is back.", tests=(_POWER,)),
        "stop": Cell(
            why_not="A machine that stands still for 10 s is not noticed by anybody but its processes' peers."
        ),
        "lease": Cell(told, tests=(_CUT_OFF,)),
        "slow": Cell(why_not=process),
        "cut": Cell(why_not=process),
        "one-way": Cell(told, tests=(_CUT_OFF,)),
        "full-disk": Cell(
            disk,
            tests=(
                f"{_CLUSTER}test_backend_survives.py::"
                "test_an_actor_evicted_more_often_than_its_limit_is_still_running",
            ),
        ),
        "read-only": Cell(
            why_not="A node whose disk is read-only starts no pods: from here it is drained. See full disk."
        ),
        **{
            fault: Cell(why_not=store)
            for fault in ("s3-500", "s3-503", "s3-slow", "s3-never", "s3-multipart")
        },
        "clock": Cell(why_not="Its processes see the jump: see the columns of the data plane."),
        "memory": Cell(
            "A replica that uses too much memory says so and fails the run.",
            tests=(
                f"{_CLUSTER}test_backend_reasons.py::"
                "test_a_replica_that_uses_too_much_memory_says_so_and_fails_the_run",
            ),
        ),
        "key": Cell(
            why_not="A node's credentials are the cluster's. Pods have the run's key: see the data plane."
        ),
        "corrupt": Cell(why_not=process),
        "oversize": Cell(
            "A replica that no node has room for says why it waits.",
            tests=(f"{_CLUSTER}test_backend_reasons.py::test_a_replica_that_cannot_start_says_why",),
        ),
        "schema": Cell(why_not="A node reads nothing of ours."),
        "stalled": Cell(why_not=store),
    }
