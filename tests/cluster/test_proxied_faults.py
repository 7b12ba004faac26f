"""What an attached client shows when the way to the API server is hurt, or the server stands still."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from cluster_runs import experiment, folder, python
from kubectl import Kube, eventually

from callsheet.spec.dump import to_yaml
from tools.cluster import images
from tools.faults.machine import stop_for
from tools.faults.proxy import PASS, Script, TcpProxy

__all__ = ["folder"]

COUNTS = "import time\nfor i in range(60):\n    print('step', i)\n    time.sleep(0.5)"
LINES = [f"worker/0 | step {number}" for number in range(60)]


@pytest.fixture
def cluster(fragile: Kube) -> Kube:
    """These tests' namespaces are in the cluster that may be hurt."""
    return fragile


@pytest.fixture(scope="module")
def image(_fragile: Kube) -> str:
    assert _fragile.own is not None
    return images.push_project_image(_fragile.own)


def proxied(kubeconfig: Path, folder: Path, server: str) -> Path:
    """The same cluster, by another address."""
    found = yaml.safe_load(kubeconfig.read_text())
    cluster = found["clusters"][0]["cluster"]
    cluster["tls-server-name"] = cluster["server"].removeprefix("https://").rsplit(":", 1)[0]
    cluster["server"] = f"https://{server}"
    made = folder / "proxied"
    made.write_text(yaml.safe_dump(found))
    return made


def shows_every_line(
    namespace: Kube, folder: Path, image: str, name: str, kubeconfig: Path, hurt: Callable[[], None]
) -> None:
    """Start `callsheet run`, hurt it when it shows its first line, and look at what it has shown in the end."""
    file = folder / "code" / "exp.yaml"
    file.write_text(
        to_yaml(experiment({"name": "worker", "command": python(COUNTS)}, name=name, image=image))
    )
    env = os.environ | {"CALLSHEET_ON": "kubernetes", "KUBECONFIG": str(kubeconfig)}
    shown, said = folder / "shown", folder / "said"
    command = [sys.executable, "-m", "callsheet", "run", "-n", namespace.namespace, "-f", str(file)]
    with shown.open("wb") as out, said.open("wb") as complaints:
        client = subprocess.Popen(command, stdout=out, stderr=complaints, env=env)
    try:
        eventually(lambda: "step 0" in shown.read_text() or client.poll() is not None)
        hurt()
        assert client.wait(240) == 0, said.read_text()
    finally:
        client.kill()
        client.wait()
    assert shown.read_text().splitlines() == LINES, said.read_text()


SCRIPTS = {
    "slow": [Script(delay=0.2, rate=50_000)],
    "cut": [Script(cut_every=20_000)],
    "corrupt": [Script(corrupt_every=20_000)],
    "one-way": [Script(stalled=frozenset({"to"})), Script(stalled=frozenset({"from"}))],
}


@pytest.mark.parametrize("fault", SCRIPTS)
def test_an_attached_client_shows_every_line_through_a_network_that_is_hurt(
    namespace: Kube, folder: Path, image: str, fault: str
) -> None:
    server = yaml.safe_load(namespace.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    with TcpProxy(server.removeprefix("https://")) as proxy:

        def hurt() -> None:
            for script in SCRIPTS[fault]:
                proxy.follow(script)
                time.sleep(10)  # how long it lasts is what is tested
                proxy.follow(PASS)

        config = proxied(namespace.kubeconfig, folder, proxy.address)
        shows_every_line(namespace, folder, image, fault, config, hurt)


def test_a_run_and_its_client_live_through_an_api_server_that_stands_still(
    namespace: Kube, folder: Path, image: str
) -> None:
    found = subprocess.run(
        ["pgrep", "-f", f"kube-apiserver .*{namespace.kubeconfig.parent}/"],
        capture_output=True,
        text=True,
        check=True,
    )
    (pid,) = map(int, found.stdout.split())
    try:
        shows_every_line(
            namespace, folder, image, "frozen", namespace.kubeconfig, lambda: stop_for(pid, 10.0).join()
        )
    finally:
        os.kill(pid, signal.SIGCONT)
