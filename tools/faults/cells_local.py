"""The cells of the supervisor and of a client that is attached to a run."""

from __future__ import annotations

from tools.faults import supervised as s
from tools.faults.matrix import Cell, Key
from tools.faults.storeproxy import StoreScript

_STOPPING = "tests/integration/test_stopping.py::"
_CLUSTER = "tests/cluster/"
_SURVIVES = (f"{_CLUSTER}test_backend_survives.py::test_a_client_that_was_killed_changes_nothing",)
_PROXIED = f"{_CLUSTER}test_proxied_faults.py::test_an_attached_client_shows_every_line_through_a_network_that_is_hurt"


def cells() -> dict[Key, Cell]:
    """Of both."""
    return {(fault, "supervisor"): cell for fault, cell in _supervisor().items()} | {
        (fault, "attached client"): cell for fault, cell in _client().items()
    }


def _supervisor() -> dict[str, Cell]:
    gone = "Within 2 s no process of the run is left. The run is reported as failed, and its logs are kept."
    stored = "The run ends as usual, and all its results are in the store."
    local = "Clients use a Unix socket on the same machine; there is no network."
    return {
        "kill": Cell(
            gone,
            tests=(
                f"{_STOPPING}test_killing_the_supervisor_leaves_no_process_of_the_run_within_two_seconds",
                "tests/integration/test_store_mirror.py::test_after_the_supervisor_was_killed_all_is_there_too",
            ),
        ),
        "stop": Cell(
            "The run continues. A replica that died meanwhile is restarted within 20 s.",
            s.stopped,
            quick=True,
        ),
        "lease": Cell(why_not="A supervisor has no lease; nothing takes over its run."),
        "slow": Cell(why_not=local),
        "cut": Cell(why_not=local),
        "one-way": Cell(why_not=local),
        "full-disk": Cell(
            "Log lines are dropped and counted. The run continues.",
            tests=("tests/integration/test_logs.py::test_a_full_disk_costs_log_lines_and_not_the_run",),
        ),
        "read-only": Cell(
            "A folder that cannot be written is an error before anything starts. (A disk with open log files cannot become "
            "read-only during a run.)",
            tests=(
                "tests/integration/test_edge_cases.py::test_a_place_that_cannot_be_written_is_said_and_nothing_runs",
            ),
        ),
        "s3-500": Cell(stored, s.store(StoreScript("error", 500))),
        "s3-503": Cell(stored, s.store(StoreScript("error", 503, retry_after=1))),
        "s3-slow": Cell(stored, s.store(StoreScript("slow", delay=2.0))),
        "s3-never": Cell(stored, s.store(StoreScript("never"))),
        "s3-multipart": Cell(stored, s.multipart),
        "clock": Cell(
            "The run neither ends nor stalls.",
            tests=("tests/integration/test_clock.py::test_a_clock_that_jumps_neither_ends_nor_stalls_a_run",),
        ),
        "memory": Cell(gone.replace("2 s", "10 s"), s.out_of_memory),
        "key": Cell(why_not="The supervisor creates the key."),
        "corrupt": Cell(
            "An invalid request closes its connection. Other connections are not affected.", s.garbage
        ),
        "oversize": Cell("An endless line does not affect other connections.", s.oversize),
        "schema": Cell(
            why_not="A supervisor lives as long as its run, and reads nothing that another version wrote."
        ),
        "stalled": Cell(why_not="A run's folder, and its copy in the store, belong to one supervisor."),
    }


def _client() -> dict[str, Cell]:
    prints = "A client writes no files that anything relies on."
    store = "A client does not use the store; the supervisor and the processes do."
    lines = "The client shows every line once and in order, and exits with the run's code."
    network = Cell(lines, tests=(_PROXIED,))
    return {
        "kill": Cell(
            "On this machine the run ends too, unless it was detached. On Kubernetes the run continues.",
            tests=(f"{_STOPPING}test_the_run_stops_when_the_program_that_started_it_goes_away", *_SURVIVES),
        ),
        "stop": Cell(lines, s.attached(s.stop_client)),
        "lease": Cell(why_not="A client has no lease; any number of clients can attach to a run."),
        "slow": network,
        "cut": network,
        "one-way": network,
        "full-disk": Cell(why_not=prints),
        "read-only": Cell(why_not=prints),
        **{
            fault: Cell(why_not=store)
            for fault in ("s3-500", "s3-503", "s3-slow", "s3-never", "s3-multipart")
        },
        "clock": Cell(lines, s.attached(s.jump_client, faked=True)),
        "memory": Cell("The same as kill -9, which is what the kernel sends.", tests=_SURVIVES),
        "key": Cell(
            "The client reports that its credentials were rejected.",
            tests=(f"{_CLUSTER}test_backend_rights.py::test_credentials_that_are_not_accepted_are_told_so",),
        ),
        "corrupt": network,
        "oversize": Cell(
            "Some of the lines are skipped on screen and counted. The log has them all.",
            tests=(
                "tests/integration/test_cli_run.py::test_a_flood_is_thinned_out_and_counted_and_the_log_has_it_all",
            ),
        ),
        "schema": Cell(
            "A file of another version is rejected, with its position and a fix.",
            tests=("tests/unit/test_load.py",),
        ),
        "stalled": Cell(why_not=store),
    }
