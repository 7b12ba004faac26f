"""When a replica is ready: its probe, its ports, or being alive; and why it is not."""

from __future__ import annotations

from pathlib import Path

from local_runs import experiment, program, replica, running, until, until_running

LATE = "until [ -e go ]; do sleep 0.05; done; exec {} {} ECHO"


def test_a_replica_with_ports_is_ready_when_they_listen(folder: Path) -> None:
    python, script, _ = program("server.py", "ECHO")
    late = ["sh", "-c", LATE.format(python, script)]
    with running(experiment({"name": "server", "command": late, "binds": [{"name": "echo"}]}), folder) as run:
        status = until(run, lambda s: replica(s, "server/0").reason)
        assert status.phase == "Starting"
        assert "not listening yet on 127." in replica(status, "server/0").reason
        assert "(echo)" in replica(status, "server/0").reason
        (folder / "go").touch()
        assert until_running(run).roles[0].ready == 1


def test_an_exec_probe_decides_and_goes_on_deciding(folder: Path) -> None:
    probe = {"exec": {"command": ["test", "-e", "ready-{index}"]}, "periodSeconds": 1, "failureThreshold": 1}
    probe["exec"] = {"command": ["sh", "-c", "test -e ready-$CALLSHEET_INDEX"]}
    role = {"name": "server", "command": program("patient.py"), "readinessProbe": probe}
    with running(experiment(role), folder) as run:
        status = until(run, lambda s: replica(s, "server/0").reason)
        assert "its readiness probe has not passed yet" in replica(status, "server/0").reason
        (folder / "ready-0").touch()
        until_running(run)
        (folder / "ready-0").unlink()
        until(run, lambda s: s.roles[0].ready == 0)


def test_http_and_tcp_probes_ask_the_replicas_own_address(folder: Path) -> None:
    serve = [*program("server.py")[:1], "-m", "http.server", "{web.port}", "--bind", "{web.host}"]
    web = {"name": "web", "command": serve, "binds": [{"name": "web", "port": 8080}]}
    missing = {"httpGet": {"path": "/missing", "port": "page"}}
    asked = {
        "name": "asked",
        "command": [*serve[:3], "{page.port}", "--bind", "{page.host}"],
        "binds": [{"name": "page", "port": 8080}],
        "readinessProbe": missing,
    }
    exp = experiment(
        {**web, "readinessProbe": {"httpGet": {"path": "/", "port": "web"}}},
        asked,
        {
            "name": "tcp",
            "command": program("server.py", "ECHO"),
            "binds": [{"name": "echo", "port": 8080}],
            "readinessProbe": {"tcpSocket": {"port": 8080}},
        },
    )
    with running(exp, folder) as run:
        status = until(run, lambda s: s.roles[0].ready and s.roles[2].ready)
        assert status.phase == "Starting", "a page that is not found is a no"
        (folder / "missing").write_text("found")
        until_running(run)
