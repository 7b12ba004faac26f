"""kubectl for the tests, and the few manifests that they share."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tools.cluster.state import Cluster

Object = dict[str, Any]

SAFE = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}

# Answers every request with the name of the pod.
WEB = """
import http.server, socket
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(socket.gethostname().encode())
    def log_message(self, *args): print("asked", flush=True)
http.server.ThreadingHTTPServer(("", 8080), Handler).serve_forever()
"""


@dataclass(frozen=True)
class Kube:
    """A cluster, by its kubeconfig; `own` is the tool's record of it where the tests started it."""

    kubeconfig: Path
    kubectl: Path | str
    own: Cluster | None = None
    namespace: str = "default"

    def within(self, namespace: str) -> Kube:
        return replace(self, namespace=namespace)

    def words(self, *args: str) -> list[str]:
        return [str(self.kubectl), "--kubeconfig", str(self.kubeconfig), "-n", self.namespace, *args]

    def _run(self, args: tuple[str, ...], stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        env = os.environ | {"GOGC": "off"}  # it ends before there is much garbage
        return subprocess.run(
            self.words(*args), input=stdin, capture_output=True, text=True, check=False, env=env
        )

    def __call__(self, *args: str, stdin: str | None = None) -> str:
        done = self._run(args, stdin)
        assert done.returncode == 0, f"kubectl {' '.join(args)}: {done.stderr}"
        return done.stdout

    def said(self, *args: str) -> str:
        """What it prints, whether it succeeds or not."""
        return self._run(args).stdout

    def refused(self, *args: str, stdin: str | None = None) -> str:
        """What kubectl says when the cluster does not accept something."""
        done = self._run(args, stdin)
        assert done.returncode != 0, f"kubectl {' '.join(args)} was expected to be refused"
        return done.stderr

    def apply(self, *objects: Object) -> None:
        self(
            "apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        )

    def get(self, *args: str) -> Object:
        found: Object = json.loads(self("get", *args, "-o", "json"))
        return found

    def nodes_of(self, selector: str) -> dict[str, str]:
        """The pods that match, and the node of each."""
        pods = self.get("pods", "-l", selector)["items"]
        return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in pods}

    def node_ready(self, name: str) -> str:
        """True, False or Unknown; empty while a new node has not told yet."""
        conditions = self.get("node", name)["status"].get("conditions", [])
        return str(next((c["status"] for c in conditions if c["type"] == "Ready"), ""))

    def ready(self, kind: str, name: str, seconds: int = 240) -> None:
        if kind == "pod":
            self("wait", "pod", name, "--for=condition=Ready", f"--timeout={seconds}s")
        else:
            self("rollout", "status", kind, name, f"--timeout={seconds}s")


def eventually(condition: Callable[[], bool], seconds: float = 180) -> None:
    """Looks less and less often: each look is a kubectl, which takes the processors from what is waited for."""
    end, pause = time.monotonic() + seconds, 0.2
    while not condition():
        assert time.monotonic() < end, "it did not come about in time"
        time.sleep(pause)
        pause = min(1.0, 1.3 * pause)


def pod(
    name: str, image: str, command: list[str], security: Object | None = None, **container: Any
) -> Object:
    spec: Object = {
        "terminationGracePeriodSeconds": 1,
        "containers": [
            {
                "name": "main",
                "image": image,
                "command": command,
                "securityContext": security or SAFE,
                **container,
            }
        ],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": spec,
    }


def web(name: str, image: str, replicas: int) -> list[Object]:
    """A StatefulSet of small web servers, its headless Service, and a balanced Service in front of it."""
    labels = {"app": name}
    template = pod(name, image, ["python3", "-c", WEB])
    template["spec"]["containers"][0]["readinessProbe"] = {"tcpSocket": {"port": 8080}, "periodSeconds": 1}
    ports = [{"name": "http", "port": 80, "targetPort": 8080}]
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": name},
            "spec": {
                "replicas": replicas,
                "podManagementPolicy": "Parallel",
                "serviceName": name,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": template["spec"]},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name},
            "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": labels},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": f"{name}-balanced"},
            "spec": {"type": "NodePort", "selector": labels, "ports": ports},
        },
    ]
