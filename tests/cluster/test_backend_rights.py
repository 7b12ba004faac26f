"""The Role that `callsheet doctor --role` prints is enough, and what is missing is named."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster_runs import FOREVER, answer, experiment, folder, python, until, until_running
from kubectl import Kube, eventually

from callsheet.backends.base import LogQuery, Place, Target
from callsheet.backends.kubernetes.backend import KubernetesBackend
from callsheet.backends.kubernetes.observe.cluster import examine
from callsheet.backends.kubernetes.rights import role
from callsheet.errors import UserError

__all__ = ["folder"]

User = Callable[[dict[str, Any] | None], KubernetesBackend]


@pytest.fixture
def user(namespace: Kube, folder: Path, monkeypatch: pytest.MonkeyPatch) -> User:
    """A user of the namespace with the rights of a Role, or with none."""

    def make(rights: dict[str, Any] | None) -> KubernetesBackend:
        namespace("create", "serviceaccount", "jo")
        if rights:
            namespace.apply(rights)
            namespace(
                "create",
                "rolebinding",
                "jo",
                f"--role={rights['metadata']['name']}",
                f"--serviceaccount={namespace.namespace}:jo",
            )
            # Rights count a moment after they are given.
            jo = f"--as=system:serviceaccount:{namespace.namespace}:jo"
            eventually(lambda: "yes" in namespace.said("auth", "can-i", "list", "pods", jo))
        token = namespace("create", "token", "jo").strip()
        config = write_config(namespace, folder, token)
        monkeypatch.setenv("KUBECONFIG", str(config))
        return KubernetesBackend(Place(namespace=namespace.namespace))

    return make


def write_config(kube: Kube, folder: Path, token: str) -> Path:
    config = yaml.safe_load(Path(kube.kubeconfig).read_text())
    config["users"] = [{"name": user["name"], "user": {"token": token}} for user in config["users"]]
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


def test_the_documented_rights_are_enough(user: User, folder: Path, image: str) -> None:
    backend = user(role())
    assert [f.said for f in examine(lambda: backend.api) if f.needed and not f.good] == []
    made = experiment(
        {"name": "worker", "replicas": 1, "scale": {"min": 1, "max": 2}, "command": python(FOREVER)},
        {
            "name": "server",
            "command": python(FOREVER),
            "restart": {"policy": "Always"},
            "exposes": [{"name": "web", "type": "NodePort"}],
            "readinessProbe": {"exec": {"command": ["true"]}},
        },
        image=image,
    )
    assert {c.action for c in backend.changes(made, base=folder / "code")} == {"create"}
    run = backend.start(made, base=folder / "code", detach=True)
    until_running(run)
    assert run.exec(Target("worker", 0), ["true"]) == 0
    assert run.status().exposed["web"].partition(":")[0] == run.pod(Target("server", 0))["status"]["hostIP"]
    run.scale({"worker": 2})
    until_running(run)
    assert run.restart([Target("server", 0)]) == ["server/0"]
    assert "up" in {line.text for line in run.logs(LogQuery())}
    run.events()
    said: list[str] = []
    forward = run.forward(Target("worker", 0), 7000, None, said.append)
    with socket.create_connection(("127.0.0.1", forward.local), timeout=60) as here:
        assert here.recv(1) == b""
    forward.close()
    assert "the pod refused" in said[0], "nobody listens there, and we were allowed to ask"
    run.stop(kill=True)
    assert run.wait(180).phase == "Stopped"
    run.delete()
    assert backend.runs() == []


def test_a_missing_right_is_named(user: User, folder: Path, image: str) -> None:
    backend = user(None)
    made = experiment({"name": "worker", "command": python(FOREVER)}, image=image)
    with pytest.raises(UserError, match=r"the right to get configmaps in the namespace 'test-.*' is missing"):
        backend.start(made, base=folder / "code", detach=True)
    missing = [f for f in examine(lambda: backend.api) if f.what == "rights"]
    assert len(missing) > 5
    assert not any(f.good for f in missing)


def test_one_right_less_is_told_by_doctor(user: User) -> None:
    less = role()
    less["rules"] = [rule for rule in less["rules"] if rule["resources"] != ["pods/exec"]]
    backend = user(less)
    (finding,) = [f for f in examine(lambda: backend.api) if f.needed and not f.good]
    assert "get, create pods/exec (for: exec, cp)" in finding.said


def test_credentials_that_are_not_accepted_are_told_so(
    namespace: Kube, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write_config(namespace, folder, "expired")
    monkeypatch.setenv("KUBECONFIG", str(config))
    with pytest.raises(UserError, match="did not accept your credentials: they are wrong or have expired"):
        KubernetesBackend(Place(namespace=namespace.namespace)).runs()


def test_the_clusters_own_authority_counts_whatever_the_environment_says(
    namespace: Kube, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"):
        monkeypatch.setenv(name, str(folder / "nothing"))
    assert answer(namespace, "ps") == []


def test_how_many_gpus_a_role_waits_for_is_told(namespace: Kube, folder: Path, image: str) -> None:
    backend = KubernetesBackend(Place(namespace=namespace.namespace))
    made = experiment(
        {"name": "learner", "command": python(FOREVER), "resources": {"limits": {"nvidia.com/gpu": 9}}},
        image=image,
    )
    run = backend.start(made, base=folder / "code", detach=True)
    until(run, lambda s: "9 GPUs free" in s.replicas[0].reason)
    run.stop(kill=True)
