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
    own = "The disks of the API server and of etcd are not ours. To Callsheet, this is a server that is down: see kill -9."
    store = "It does not use the run's store."
    client = Cell(lines, tests=(_PROXIED,))
    return {
        "kill": Cell(f"Down for 20 s. {lines}", tests=(_OUTAGE,)),
        "stop": Cell(lines, tests=(_FROZEN,)),
        "lease": Cell(
            "Controllers that lost their leadership start over with the cluster's current state.",
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
        "clock": Cell(why_not="Callsheet never compares its clock with another."),
        "memory": Cell("The same as kill -9, which is what the kernel sends.", tests=(_OUTAGE,)),
        "key": Cell(
            "The client only talks to a server whose certificate the cluster's own authority has signed.",
            tests=(
                f"{_CLUSTER}test_backend_rights.py::"
                "test_the_clusters_own_authority_counts_whatever_the_environment_says",
            ),
        ),
        "corrupt": client,
        "oversize": Cell(
            "A folder that does not fit into ConfigMaps is rejected before anything is sent; the error names its biggest files.",
            tests=(
                "tests/unit/test_kubernetes_render.py::test_a_folder_that_is_too_large_names_its_biggest_files",
            ),
        ),
        "schema": Cell(
            "A real API server accepts the custom resource, and rejects invalid experiments.",
            tests=(f"{_CLUSTER}test_crd_cluster.py",),
        ),
        "stalled": Cell(why_not=store),
    }


def _node() -> dict[str, Cell]:
    told = "`status` says that the node does not respond. Its replicas come back with it, and no restart is counted."
    process = "Connections belong to the node's processes: see the data plane's columns."
    disk = "The kubelet evicts pods when its disk is full. An evicted replica comes back, and no failure is counted."
    store = "A node does not use the store: the processes on it do."
    return {
        "kill": Cell("The loss is noticed, and the node's pods run again when it is back.", tests=(_POWER,)),
        "stop": Cell(why_not="Only the peers of its processes notice a machine that freezes for 10 s."),
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
            why_not="A node with a read-only disk starts no pods. To Callsheet, it is drained: see full disk."
        ),
        **{
            fault: Cell(why_not=store)
            for fault in ("s3-500", "s3-503", "s3-slow", "s3-never", "s3-multipart")
        },
        "clock": Cell(why_not="Its processes see the jump: see the data plane's columns."),
        "memory": Cell(
            "`status` says that the replica ran out of memory, and the run fails.",
            tests=(
                f"{_CLUSTER}test_backend_reasons.py::"
                "test_a_replica_that_uses_too_much_memory_says_so_and_fails_the_run",
            ),
        ),
        "key": Cell(
            why_not="A node's credentials belong to the cluster. Pods have the run's key: see the data plane."
        ),
        "corrupt": Cell(why_not=process),
        "oversize": Cell(
            "`status` says why a replica that fits on no node is waiting.",
            tests=(f"{_CLUSTER}test_backend_reasons.py::test_a_replica_that_cannot_start_says_why",),
        ),
        "schema": Cell(why_not="A node reads none of Callsheet's data."),
        "stalled": Cell(why_not=store),
    }
