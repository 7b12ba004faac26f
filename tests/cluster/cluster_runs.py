"""Helpers for tests that run experiments in the cluster: make one, start it, inspect it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubectl import Kube, eventually

from callsheet import contract
from callsheet.backends.base import LogQuery, Place, ReplicaStatus, Status, Target
from callsheet.backends.kubernetes.backend import KubernetesBackend
from callsheet.backends.kubernetes.run import KubernetesRun
from callsheet.plan.check import check_experiment
from callsheet.spec.experiment import Experiment

FOREVER = "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\nprint('up')\nwhile True: time.sleep(1)"
"""Runs until it is told to end, and then says that it did not finish."""


@pytest.fixture
def folder(namespace: Kube, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory of the test; the kubeconfig is the test cluster's. What the test left running goes."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(contract.PREFIX)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("KUBECONFIG", str(namespace.kubeconfig))
    (tmp_path / "code").mkdir()
    yield tmp_path
    # A namespace is deleted pods first, and a Job would want them back: the experiments go before it.
    namespace("delete", "configmaps", "-l", "app.kubernetes.io/managed-by=callsheet", "--wait=false")
    eventually(lambda: not namespace.get("jobs")["items"])


@pytest.fixture
def cloud(namespace: Kube, folder: Path) -> KubernetesBackend:
    """The backend in a namespace of the test's own."""
    return KubernetesBackend(Place(namespace=namespace.namespace))


@pytest.fixture
def begin(cloud: KubernetesBackend, folder: Path, image: str) -> Iterator[Callable[..., KubernetesRun]]:
    """Starts an experiment of these roles; it is surely over when the test is."""
    started: list[KubernetesRun] = []

    def start(*roles: dict[str, Any], detach: bool = True, name: str = "exp", **spec: Any) -> KubernetesRun:
        made = experiment(*roles, name=name, image=image, **spec)
        started.append(cloud.start(made, base=folder / "code", detach=detach))
        return started[-1]

    yield start
    for run in started:
        cloud.api.delete("ConfigMap", run.experiment)


def experiment(*roles: dict[str, Any], name: str = "exp", **spec: Any) -> Experiment:
    """A checked experiment whose pods end soon when told to."""
    quick = [{"terminationGracePeriod": "2s", **role} for role in roles]
    made = Experiment.model_validate({"metadata": {"name": name}, "spec": {"roles": quick, **spec}})
    problems = check_experiment(made)
    assert not problems, problems
    return made


def python(code: str, *arguments: str) -> list[str]:
    return ["python3", "-u", "-c", code, *arguments]


def until(run: KubernetesRun, wanted: Callable[[Status], object], within: float = 180.0) -> Status:
    """The first status that fits."""
    limit = time.monotonic() + within
    for status in run.watch(0.2):
        if wanted(status):
            return status
        assert time.monotonic() < limit, status
    raise AssertionError(f"the run ended first: {status}")


def until_running(run: KubernetesRun) -> Status:
    return until(run, lambda status: status.phase == "Running" and all(r.ready for r in status.replicas))


def replica(status: Status, name: str) -> ReplicaStatus:
    return next(r for r in status.replicas if r.name == name)


def lines(run: KubernetesRun, target: str, **query: Any) -> list[str]:
    return [line.text for line in run.logs(LogQuery(targets=[Target.parse(target)], **query))]


def callsheet(kube: Kube, *words: str) -> subprocess.CompletedProcess[str]:
    """The command line as a user types it, in the test's namespace."""
    env = os.environ | {"CALLSHEET_ON": "kubernetes", "KUBECONFIG": str(kube.kubeconfig)}
    command = [sys.executable, "-m", "callsheet", words[0], "-n", kube.namespace, *words[1:]]
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False)


def answer(kube: Kube, *words: str) -> Any:
    """What a command that must work answers with `-o json`."""
    done = callsheet(kube, *words, "-o", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
