"""Every replica has an address of its own, reserved for its run and the same for as long as the run lasts."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from local_runs import PYTHON, backend, eventually, experiment, program, python, running, until, until_running

from callsheet.backends.local.client import LocalRun
from callsheet.backends.local.loopback import reserve_blocks
from callsheet.errors import InvalidExperiment
from callsheet.spec.experiment import Experiment


def test_replicas_of_two_runs_may_all_use_the_same_fixed_port(folder: Path) -> None:
    role = {"name": "server", "replicas": 3, "binds": [{"name": "echo", "port": 9999}]}
    exp = experiment({**role, "command": program("server.py", "ECHO")})
    with running(exp, folder) as one, running(exp, folder) as two:
        hosts = [r.host for run in (one, two) for r in until_running(run).replicas]
        assert len(set(hosts)) == 6
        for host in hosts:
            with socket.create_connection((host, 9999)) as connection:
                connection.sendall(b"hello\n")
                assert connection.recv(100) == b"hello\n"


def test_nothing_listens_to_the_outside(folder: Path) -> None:
    role = {"name": "server", "binds": [{"name": "echo"}], "command": program("server.py", "ECHO")}
    with running(experiment(role), folder) as run:
        assert until_running(run).replicas[0].host.startswith("127.")


def test_a_fixed_port_that_is_taken_is_an_error_that_says_by_whom(folder: Path) -> None:
    role = {"name": "server", "command": program("server.py", "ECHO")}
    with socket.create_server(("0.0.0.0", 0)) as listener:
        port = listener.getsockname()[1]
        exp = experiment({**role, "binds": [{"name": "echo", "port": port}]})
        with pytest.raises(InvalidExperiment) as caught:
            backend("local").start(exp, base=folder)
    (problem,) = caught.value.problems
    assert problem.path == "spec.roles[server].binds[echo].port"
    assert f"port {port} is taken on all addresses: held by" in problem.message
    assert Path(sys.executable).name in problem.message
    assert not (folder / "runs").exists(), "nothing was started and nothing is left"


def test_a_chosen_port_avoids_those_that_are_taken(folder: Path) -> None:
    # A name, and so a port, that no other test has.
    role = {"name": "server", "binds": [{"name": "crowded"}], "command": program("server.py", "CROWDED")}
    usual = backend("local").plan(experiment(role), base=folder).address_book["endpoints"]["crowded"]["port"]
    with socket.create_server(("0.0.0.0", usual)), running(experiment(role), folder) as run:
        until_running(run)
        book = json.loads(Path(run.layout.addresses).read_text())
        assert book["endpoints"]["crowded"]["port"] == usual + 1


def test_blocks_of_addresses_are_given_out_once_and_come_back() -> None:
    names, sockets = reserve_blocks(300)
    more, others = reserve_blocks(300)
    assert not set(names) & set(more)
    for holder in (*sockets, *others):
        holder.close()


@contextmanager
def both_at_once(exp: Experiment, folder: Path) -> Iterator[list[LocalRun]]:
    """Two runs of one experiment, started by two threads at the same moment."""
    with ThreadPoolExecutor(2) as hands, ExitStack() as stack:
        yield list(hands.map(lambda _: stack.enter_context(running(exp, folder)), range(2)))


@pytest.mark.exclusive
def test_two_runs_of_200_replicas_started_at_once_never_clash(folder: Path) -> None:
    idle = experiment({"name": "actor", "replicas": 200, "command": ["sleep", "1000"]}, name="idle")
    for _ in range(19):
        with both_at_once(idle, folder) as pair:
            hosts = [r.host for run in pair for r in until_running(run).replicas]
            assert len(set(hosts)) == 400
    listen = "import _socket,time; s=_socket.socket(); s.bind(('{echo.host}', {echo.port})); s.listen(); time.sleep(1000)"
    role = {"name": "server", "replicas": 200, "binds": [{"name": "echo", "port": 7777}]}
    exp = experiment({**role, "command": [PYTHON, "-I", "-S", "-c", listen]}, name="listening")
    with both_at_once(exp, folder) as pair:
        for run in pair:
            status = until(run, lambda s: s.phase == "Running", within=90)
            assert (status.roles[0].ready, status.restarts) == (200, 0)


def test_the_address_file_follows_scaling(folder: Path) -> None:
    server = {
        "name": "server",
        "scale": {"min": 1, "max": 5},
        "binds": [{"name": "echo"}],
        "command": program("server.py", "ECHO"),
    }
    reader = {"name": "reader", "connects": ["echo"], "command": python("import time; time.sleep(1000)")}
    with running(experiment(server, reader), folder) as run:
        until_running(run)
        path = Path(run.layout.addresses)
        first = json.loads(path.read_text())["endpoints"]["echo"]["addresses"]
        run.scale({"server": 4})
        book = eventually(lambda: (b := json.loads(path.read_text()))["generation"] == 1 and b)
        assert book["endpoints"]["echo"]["addresses"][:1] == first
        assert len(book["endpoints"]["echo"]["addresses"]) == 4
        assert book["roles"]["server"]["replicas"] == 4
        run.scale({"server": 1})
        book = eventually(lambda: (b := json.loads(path.read_text()))["generation"] == 2 and b)
        assert book["endpoints"]["echo"]["addresses"] == first
