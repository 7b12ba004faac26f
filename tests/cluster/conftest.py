"""One real cluster for all tests of this folder, shared by every worker.

CALLSHEET_TEST_KUBECONFIG names another cluster to use instead (and CALLSHEET_TEST_IMAGE an image that it can pull).
Where no cluster can be had the tests are skipped and say so; with CI=true they are never skipped.
"""

from __future__ import annotations

import fcntl
import os
import sys
import tempfile
import uuid
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from kubectl import Kube

from tools.cluster import faults, images, lifecycle, state
from tools.cluster.build import program

NAME = "test"
FINALIZERS = (
    "custom-columns=NAME:.metadata.name,DELETED:.metadata.deletionTimestamp,HELD_BY:.metadata.finalizers"
)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "cluster: needs a real Kubernetes; `make cluster` shows what that takes"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.cluster)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Function, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows what was in its namespace: nobody can look at a cluster that is gone."""
    report = yield
    kube = item.funcargs.get("namespace")
    if report.when == "call" and report.failed and isinstance(kube, Kube):
        report.sections.append(("pods and jobs", kube.said("get", "pods,jobs", "-o", "wide")))
        report.sections.append(("finalizers", kube.said("get", "pods", "-o", FINALIZERS)))
        report.sections.append(("events", kube.said("get", "events", "--sort-by=.lastTimestamp")[-4000:]))
    return report


def why_not() -> str:
    """Why no cluster can be started here; empty where one can."""
    if sys.platform != "linux":
        return f"no cluster: a cluster of namespaces needs Linux, this is {sys.platform}"
    if os.geteuid() != 0:
        return "no cluster: it needs root (or CALLSHEET_TEST_KUBECONFIG)"
    return ""


def need_root() -> None:
    if (reason := why_not()) and os.environ.get("CI") != "true":
        pytest.skip(reason)
    assert not reason, reason


def own_name(name: str) -> str:
    """A cluster's name that no other worker uses."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    return f"{name}-{worker}" if worker else name


@pytest.fixture(scope="session")
def cluster() -> Iterator[Kube]:
    """A cluster of two nodes. The first worker starts it and the last one takes it down."""
    other = os.environ.get("CALLSHEET_TEST_KUBECONFIG")
    if other:
        yield Kube(Path(other), "kubectl")
        return
    need_root()
    with (Path(tempfile.gettempdir()) / "callsheet-test-cluster.users").open("w") as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        own = lifecycle.up(NAME, 2)
        yield Kube(own.kubeconfig, program("kubectl"), own)
        fcntl.flock(users, fcntl.LOCK_UN)
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        lifecycle.down(NAME)


@pytest.fixture(scope="session")
def image(cluster: Kube) -> str:
    """An image with Python and Callsheet that the nodes can pull."""
    if cluster.own is None:
        return os.environ.get("CALLSHEET_TEST_IMAGE", "python:3.11-slim")
    return images.push_project_image(cluster.own)


@pytest.fixture
def namespace(cluster: Kube) -> Iterator[Kube]:
    """The cluster seen from a namespace of the test's own."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    cluster("create", "namespace", name)
    # Without its account no pod is taken, and its maker may still be starting: an API server was away before.
    cluster.within(name)("wait", "--for=create", "serviceaccount/default", "--timeout=120s")
    yield cluster.within(name)
    cluster("delete", "namespace", name, "--wait=false")


@pytest.fixture(scope="session")
def start() -> Iterator[Callable[[str, int], Kube]]:
    """Starts clusters that a test may take apart; they are gone when the tests are, and no other worker has them."""
    if os.environ.get("CALLSHEET_TEST_KUBECONFIG"):
        pytest.skip("this test takes a cluster of its own apart")
    need_root()
    names: list[str] = []

    def up(name: str, nodes: int) -> Kube:
        name = own_name(name)
        names.append(name)
        own = lifecycle.up(name, nodes)
        return Kube(own.kubeconfig, program("kubectl"), own)

    yield up
    for name in names:
        lifecycle.down(name)
    assert not set(names) & set(state.known())


@pytest.fixture(scope="session")
def _fragile(start: Callable[[str, int], Kube]) -> Kube:
    return start("fragile", 2)


@pytest.fixture
def fragile(_fragile: Kube) -> Iterator[Kube]:
    """A cluster that tests hurt on purpose, one after the other; each finds it whole."""
    yield _fragile
    assert _fragile.own is not None
    faults.heal(_fragile.own)
