"""`status` says why a replica waits or failed, in one line that a person understands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from cluster_runs import FOREVER, begin, cloud, folder, python, replica, until
from kubectl import Kube

from callsheet.backends.kubernetes.run import KubernetesRun

__all__ = ["begin", "cloud", "folder"]

Begin = Callable[..., KubernetesRun]


@pytest.mark.parametrize(
    ("role", "reason"),
    [
        (
            {"resources": {"limits": {"nvidia.com/gpu": 64}}},  # another test gives a node one
            "no node has 64 GPUs free for it (2 nodes checked)",
        ),
        (
            {"nodeSelector": {"pool": "moon"}},
            "no node fits; of 2: 2 not matching its nodeSelector or affinity",
        ),
        ({"resources": {"requests": {"cpu": "900"}}}, "no node fits; of 2: 2 with too little free cpu"),
        ({"image": "no.such.registry.invalid/nothing:1"}, "cannot be pulled: its registry does not answer"),
        ({"image": "Not An Image"}, "cannot be pulled: that is not the name of an image"),
        (
            {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "no-such", "key": "k"}}}]},
            'worker cannot be started: secret "no-such" not found',
        ),
    ],
)
def test_a_replica_that_cannot_start_says_why(begin: Begin, role: dict[str, Any], reason: str) -> None:
    run = begin({"name": "worker", "command": python(FOREVER), **role})
    status = until(run, lambda status: reason in replica(status, "worker/0").reason)
    assert status.phase in ("Pending", "Starting")


def test_an_image_that_the_registry_does_not_have_is_named(begin: Begin, image: str) -> None:
    missing = image.rpartition(":")[0] + ":no-such-tag"
    run = begin({"name": "worker", "command": python(FOREVER), "image": missing})
    wanted = f"the image {missing!r} cannot be pulled: the registry does not have it"
    until(run, lambda status: wanted in replica(status, "worker/0").reason)


def test_a_claim_that_is_not_there_or_not_bound_is_named(begin: Begin, namespace: Kube) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "waits"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    namespace.apply(claim)
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in ("waits", "missing")]
    roles = [
        {
            "name": name,
            "command": python(FOREVER),
            "volumeMounts": [{"name": name, "mountPath": "/data"}],
        }
        for name in ("waits", "missing")
    ]
    run = begin(*roles, volumes=volumes)
    until(run, lambda s: "its volume claim waits is not bound" in replica(s, "waits/0").reason)
    until(run, lambda s: "no persistent volume claim 'missing'" in replica(s, "missing/0").reason)


def test_a_quota_that_stands_in_the_way_is_told_in_numbers(begin: Begin, namespace: Kube) -> None:
    namespace("create", "quota", "small", "--hard=pods=1")
    run = begin({"name": "worker", "replicas": 2, "command": python(FOREVER)})

    def told(status: Any) -> bool:
        reasons = [r.reason for r in status.replicas]
        return any(
            "the namespace's quota 'small' allows pods=1, pods=1 is used and pods=1 more is requested"
            in reason
            for reason in reasons
        )

    until(run, told)


def test_a_crash_loop_comes_with_its_last_lines(begin: Begin) -> None:
    broken = python("print('loading'); raise SystemExit('no such checkpoint')")
    run = begin({"name": "server", "restart": {"policy": "Always"}, "command": broken})
    status = until(run, lambda s: "last lines" in replica(s, "server/0").reason)
    said = replica(status, "server/0").reason
    assert "server keeps ending (exit code 1)" in said
    assert "no such checkpoint" in said


def test_a_replica_that_uses_too_much_memory_says_so_and_fails_the_run(begin: Begin) -> None:
    hungry = python("x = bytearray(200_000_000); print(len(x))")
    run = begin(
        {
            "name": "worker",
            "command": hungry,
            "restart": {"policy": "Never"},
            "resources": {"limits": {"memory": "48Mi"}},
        },
        detach=False,
    )
    status = run.wait(180)
    assert status.phase == "Failed"
    assert status.exit_code == 137
    assert "worker/0 failed: killed for using more memory than its limit of 48Mi" in status.reason


def test_a_replica_that_says_that_no_restart_can_fix_it_fails_immediately(begin: Begin) -> None:
    run = begin({"name": "worker", "command": python("raise SystemExit(78)")}, detach=False)
    status = run.wait(180)
    assert (status.phase, status.exit_code, status.restarts) == ("Failed", 78, 0)
    assert status.reason == "worker/0 failed: exit code 78; a restart cannot fix this: see its log"


def test_a_program_that_is_not_in_the_image_is_named(begin: Begin) -> None:
    run = begin(
        {"name": "worker", "command": ["no-such-program"], "restart": {"policy": "Never"}}, detach=False
    )
    status = run.wait(180)
    assert status.phase == "Failed"
    assert "its program could not be started: no-such-program" in status.reason
