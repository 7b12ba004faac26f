"""The ways into a cluster that a kubeconfig can name beside an address and a token: each is enough for all verbs."""

from __future__ import annotations

import base64
import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from cluster_runs import FOREVER, begin, cloud, folder, python, until_running
from kubectl import Kube

from callsheet.backends.base import LogQuery, Place, Target
from callsheet.backends.kubernetes.backend import KubernetesBackend
from callsheet.backends.kubernetes.client.api import Api
from callsheet.backends.kubernetes.run import KubernetesRun
from callsheet.errors import UserError

__all__ = ["begin", "cloud", "folder"]

Config = dict[str, Any]
Use = Callable[[Config], None]
Check = Callable[[], None]


class Relay:
    """Passes connections on to a place; as a proxy, to where each one asks for, and it writes down where that was."""

    def __init__(self, host: str, to: tuple[str, int] | None = None) -> None:
        self.asked: list[str] = []
        self._to = to
        self._socket = socket.create_server((host, 0))
        self.address = "{}:{}".format(*self._socket.getsockname())
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):  # closed
            while True:
                threading.Thread(target=self._pass_on, args=self._socket.accept()[:1], daemon=True).start()

    def _pass_on(self, here: socket.socket) -> None:
        with closing(here), suppress(OSError):  # either end may go away
            to = self._to or self._where(here)
            with socket.create_connection(to) as there:
                back = threading.Thread(target=_pump, args=(there, here), daemon=True)
                back.start()
                _pump(here, there)
                back.join()

    def _where(self, here: socket.socket) -> tuple[str, int]:
        head = b""
        while b"\r\n\r\n" not in head:
            if not (more := here.recv(4096)):
                raise ConnectionError("it was closed before it asked")
            head += more
        verb, place, *_ = head.decode().split()
        assert verb == "CONNECT"
        self.asked.append(place)
        here.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        host, _, port = place.rpartition(":")
        return host, int(port)

    def close(self) -> None:
        self._socket.close()


def _pump(here: socket.socket, there: socket.socket) -> None:
    with suppress(OSError):
        while data := here.recv(1 << 16):
            there.sendall(data)
        there.shutdown(socket.SHUT_WR)


@pytest.fixture
def config(namespace: Kube) -> Config:
    """The kubeconfig's cluster and user, to be changed."""
    if namespace.own is None:
        pytest.skip("the kubeconfig of another cluster may have other ways in")
    found = yaml.safe_load(Path(namespace.kubeconfig).read_text())
    return {"cluster": found["clusters"][0]["cluster"], "user": found["users"][0]["user"]}


@pytest.fixture
def use(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Use:
    """Makes it the kubeconfig of what follows."""

    def write(config: Config) -> None:
        path = folder / "kubeconfig"
        whole = {
            "current-context": "one",
            "clusters": [{"name": "c", "cluster": config["cluster"]}],
            "users": [{"name": "u", "user": config["user"]}],
            "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u"}}],
        }
        path.write_text(yaml.safe_dump(whole))
        monkeypatch.setenv("KUBECONFIG", str(path))

    return write


@pytest.fixture
def relay() -> Iterator[Callable[..., Relay]]:
    made: list[Relay] = []

    def make(host: str, to: tuple[str, int] | None = None) -> Relay:
        made.append(Relay(host, to))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def all_verbs_work(begin: Callable[..., KubernetesRun], namespace: Kube) -> Check:
    """Tries ordinary requests, a log that is followed and a stream in both directions, with the kubeconfig of then."""
    run = begin({"name": "worker", "command": python(FOREVER)})

    def check() -> None:
        until_running(run)
        seen = KubernetesBackend(Place(namespace=namespace.namespace)).find(run.experiment)
        assert seen.status().phase == "Running"
        assert next(iter(seen.logs(LogQuery(follow=True)))).text == "up"
        assert seen.exec(Target("worker", 0), ["true"]) == 0

    return check


PROGRAM = """
import json, os, sys
asked = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
assert asked["spec"]["cluster"]["server"] == sys.argv[1], asked
status = json.load(open(sys.argv[2]))
print(json.dumps({"apiVersion": asked["apiVersion"], "kind": "ExecCredential", "status": status}))
"""


def test_a_program_may_give_a_certificate(
    all_verbs_work: Check, folder: Path, config: Config, use: Use
) -> None:
    user, status = config["user"], folder / "status.json"
    (folder / "login.py").write_text(PROGRAM)
    given = {
        f"{name}Data": base64.b64decode(user[key]).decode()
        for name, key in (
            ("clientCertificate", "client-certificate-data"),
            ("clientKey", "client-key-data"),
        )
    }
    status.write_text(json.dumps(given))
    how = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": [str(folder / "login.py"), config["cluster"]["server"], str(status)],
        "provideClusterInfo": True,
    }
    use(config | {"user": {"exec": how}})
    all_verbs_work()
    status.write_text(json.dumps(given | {"clientKeyData": "nonsense"}))
    with pytest.raises(UserError, match="printed a certificate that cannot be used"):
        Api.connect().objects("Pod")


def test_a_server_is_called_by_the_name_that_the_kubeconfig_gives_it(
    all_verbs_work: Check, config: Config, use: Use, relay: Callable[..., Relay]
) -> None:
    server = urlsplit(config["cluster"]["server"])
    # The server's certificate does not name this address.
    cluster = config["cluster"] | {
        "server": f"https://{relay('127.0.0.2', (server.hostname, server.port)).address}"
    }
    use(config | {"cluster": cluster})
    with pytest.raises(UserError, match="a certificate that the kubeconfig does not trust"):
        Api.connect().objects("Pod")
    use(config | {"cluster": cluster | {"tls-server-name": "kubernetes"}})
    all_verbs_work()
    use(config | {"cluster": cluster | {"tls-server-name": "somebody-else"}})
    with pytest.raises(UserError, match="a certificate that the kubeconfig does not trust"):
        Api.connect().objects("Pod")


def test_a_proxy_that_the_kubeconfig_names_is_gone_through(
    all_verbs_work: Check, config: Config, use: Use, relay: Callable[..., Relay]
) -> None:
    proxy = relay("127.0.0.1")
    use(config | {"cluster": config["cluster"] | {"proxy-url": f"http://{proxy.address}"}})
    all_verbs_work()
    # Requests, the log and the stream have a connection each.
    assert len(proxy.asked) >= 3
    assert set(proxy.asked) == {urlsplit(config["cluster"]["server"]).netloc}
    use(config | {"cluster": config["cluster"] | {"proxy-url": "gopher://somewhere"}})
    with pytest.raises(UserError, match="the proxy-url of the kubeconfig cannot be used"):
        Api.connect()
