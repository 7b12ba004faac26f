"""`status` shows the address that a person can open, however an endpoint is exposed."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from urllib.error import URLError

from cluster_runs import answer, begin, callsheet, cloud, folder, python, until_running
from kubectl import Kube, eventually

from callsheet.backends.kubernetes.run import KubernetesRun

__all__ = ["begin", "cloud", "folder"]

WEB = (
    "import http.server\n"
    "class Handler(http.server.BaseHTTPRequestHandler):\n"
    "    def do_GET(self):\n"
    "        self.send_response(200); self.end_headers(); self.wfile.write(b'hello')\n"
    "http.server.ThreadingHTTPServer(('', 8080), Handler).serve_forever()"
)


def shown(kube: Kube, run: KubernetesRun) -> dict[str, str]:
    """Each endpoint with what `status` says of it."""
    text = callsheet(kube, "status", run.id).stdout
    pairs = (line.partition(" at  ") for line in text.splitlines())
    return {name: address.strip() for name, found, address in pairs if found}


def give(kube: Kube, kind: str, name: str, place: dict[str, str]) -> None:
    """An address, as a cloud's controller gives it."""
    patch = json.dumps({"status": {"loadBalancer": {"ingress": [place]}}})
    kube("patch", kind, name, "--subresource=status", "--type=merge", "-p", patch)


def test_every_way_to_expose_an_endpoint_ends_at_an_address(
    begin: Callable[..., KubernetesRun], namespace: Kube
) -> None:
    exposes = [
        {"name": "web", "port": 8080, "type": "NodePort"},
        {"name": "page", "port": 8081, "type": "Ingress", "host": "rl.example.org"},
        {"name": "big", "port": 8082, "type": "LoadBalancer"},
        {"name": "own", "port": 8083},
    ]
    run = begin({"name": "board", "command": python(WEB), "exposes": exposes})
    until_running(run)

    found = shown(namespace, run)

    def answers() -> bool:
        # A container that runs may not listen yet, and the nodes learn later than we that it is ready.
        try:
            with urllib.request.urlopen(f"http://{found['web']}", timeout=60) as answer:
                return bool(answer.read() == b"hello")
        except URLError:
            return False

    eventually(answers)
    assert (found["big"], found["page"]) == ("waiting for an address",) * 2
    assert (
        found["own"] == f"exp-own:8083 in the cluster; from here, use `callsheet port-forward {run.id} own`"
    )

    give(namespace, "service", "exp-big", {"ip": "203.0.113.7"})
    give(namespace, "ingress", "exp-page", {"hostname": "lb.example.org"})
    wanted = {
        "web": found["web"],
        "page": "http://rl.example.org/",
        "big": "203.0.113.7:8082",
        "own": "exp-own:8083",
    }
    status = answer(namespace, "status", run.id)
    assert status["exposed"] == wanted
    (listed,) = answer(namespace, "ps")
    assert listed["exposed"] == wanted
