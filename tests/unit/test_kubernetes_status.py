"""From pods and events to a status and its reasons: pure, so that rare moments can be shown."""

from __future__ import annotations

import json
from typing import Any

import pytest

from callsheet.backends.kubernetes import names
from callsheet.backends.kubernetes.client.errors import ApiError, Unreachable, api_error, explain_limit
from callsheet.backends.kubernetes.observe import exposed, reasons
from callsheet.backends.kubernetes.observe.observed import Observed, indexes
from callsheet.backends.kubernetes.observe.status import Assessment, assess
from callsheet.backends.kubernetes.record import Outcome, Record

Object = dict[str, Any]
NOW = 1_800_000_000.0
ROLES = [{"name": "learner"}, {"name": "actor", "restart": {"limit": 2}}]


def pod(role: str, index: int = 0, phase: str = "Running", **more: Any) -> Object:
    state = more.pop(
        "state", {"running": {"startedAt": "2027-01-15T07:59:00Z"}} if phase == "Running" else {}
    )
    container = {
        "name": role,
        "image": "rl:1",
        "ready": phase == "Running",
        "restartCount": 0,
        "state": state,
    }
    return {
        "metadata": {
            "name": f"exp-{role}-{index}-x",
            "uid": f"pod-{role}-{index}",
            "labels": {names.ROLE: role, "batch.kubernetes.io/job-completion-index": str(index)},
            "annotations": {"batch.kubernetes.io/job-index-failure-count": str(more.pop("failures", 0))},
            "creationTimestamp": more.pop("made", "2027-01-15T07:58:00Z"),
        }
        | more.pop("metadata", {}),
        "spec": {
            "containers": [{"name": role, "resources": more.pop("resources", {})}],
            **more.pop("spec", {}),
        },
        "status": {
            "phase": phase,
            "containerStatuses": [container],
            "conditions": [{"type": "Ready", "status": "True" if phase == "Running" else "False"}],
        }
        | more,
    }


def ended(code: int, **more: Any) -> Object:
    return {"terminated": {"exitCode": code, "finishedAt": "2027-01-15T07:59:30Z", **more}}


def observed(
    *pods: Object, lifecycle: Object | None = None, jobs: Object | None = None, **more: Any
) -> Observed:
    experiment = {"metadata": {"name": "exp"}, "spec": {"roles": ROLES, "lifecycle": lifecycle or {}}}
    data = {
        "CALLSHEET_RUN": "r1",
        names.EXPERIMENT_FILE: json.dumps(experiment),
        "CALLSHEET_REPLICAS.learner": "1",
        "CALLSHEET_REPLICAS.actor": "1",
    }
    annotations = {names.STARTED: str(NOW - 100)} | more.pop("annotations", {})
    config_map = {"metadata": {"name": "exp", "namespace": "team", "annotations": annotations}, "data": data}
    workloads: dict[str, Object] = {
        role["name"]: {
            "metadata": {"uid": f"job-{role['name']}"},
            "spec": {},
            "status": (jobs or {}).get(role["name"], {}),
        }
        for role in ROLES
    }
    return Observed(config_map, workloads, list(pods), more.pop("events", []))


def look(*pods: Object, **more: Any) -> Assessment:
    return assess(observed(*pods, **more), NOW)


def test_all_ready_is_running() -> None:
    status = look(pod("learner"), pod("actor")).status
    assert (status.phase, status.namespace, status.backend) == ("Running", "team", "kubernetes")
    assert [(role.name, role.wanted, role.ready) for role in status.roles] == [
        ("learner", 1, 1),
        ("actor", 1, 1),
    ]
    assert status.uptime == pytest.approx(100)


def test_nothing_there_yet_is_pending_and_says_so() -> None:
    status = look().status
    assert status.phase == "Pending"
    assert status.replicas[0].reason == "its pod is not there yet"


def test_a_failed_pod_waits_for_its_successor_and_is_not_the_end() -> None:
    found = look(pod("learner"), pod("actor", phase="Failed", state=ended(3)))
    assert found.outcome is None
    assert found.status.replicas[1].phase == "Pending"
    assert found.status.replicas[1].reason == "exit code 3 (restart 1 of 2); a new pod takes its place soon"


def test_the_newest_pod_of_a_replica_counts() -> None:
    old = pod("actor", phase="Failed", state=ended(1))
    new = pod("actor", failures=1)
    status = look(pod("learner"), new, old).status
    assert (status.replicas[1].phase, status.replicas[1].attempt, status.restarts) == ("Running", 1, 1)


def test_an_index_that_failed_for_good_fails_the_run() -> None:
    jobs = {"actor": {"failedIndexes": "0"}}
    found = look(pod("learner"), pod("actor", phase="Failed", state=ended(3), failures=2), jobs=jobs)
    assert found.outcome == Outcome(
        "r1", "Failed", "actor/0 failed: exit code 3; it was restarted 2 times, its limit", 3, NOW
    )
    assert not found.status.done, "the learner still runs, and nobody has ended it yet"
    assert "nobody is attached" in found.status.warnings[0]


def test_success_needs_every_replica_of_the_named_roles() -> None:
    jobs = {"learner": {"completedIndexes": "0"}}
    found = look(pod("learner", phase="Succeeded", state=ended(0)), pod("actor"), jobs=jobs)
    assert found.outcome is None
    only = look(
        pod("learner", phase="Succeeded", state=ended(0)),
        pod("actor"),
        jobs=jobs,
        lifecycle={"success": ["learner"]},
    )
    assert only.outcome is not None
    assert only.outcome.phase == "Succeeded"


def test_a_run_whose_outcome_is_written_down_is_stopping_until_its_pods_are_gone() -> None:
    outcome = Outcome("r1", "Stopped", "stopped with `callsheet stop`", 143, NOW - 5)
    annotations = {names.OUTCOME: outcome.to_text()}
    assert look(pod("learner"), annotations=annotations).status.phase == "Stopping"
    status = look(annotations=annotations).status
    assert (status.phase, status.exit_code, status.finished) == ("Stopped", 143, NOW - 5)
    assert [replica.phase for replica in status.replicas] == ["Stopped", "Stopped"]


def test_the_outcome_of_an_earlier_run_is_ignored() -> None:
    outcome = Outcome("r0", "Stopped", "", 143, NOW - 5)
    annotations = {names.OUTCOME: outcome.to_text()}
    assert look(pod("learner"), pod("actor"), annotations=annotations).status.phase == "Running"


def test_deadline_and_budget_of_restarts_end_a_run() -> None:
    late = look(pod("learner"), pod("actor"), lifecycle={"deadline": "1m30s"}).outcome
    assert late is not None
    assert (late.phase, late.code) == ("Failed", 124)
    often = look(pod("learner", failures=2), pod("actor", failures=2), lifecycle={"maxRestarts": 3}).outcome
    assert often is not None
    assert "budget of 3 restarts" in often.reason


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (
            "0/3 nodes are available: 3 Insufficient nvidia.com/gpu. preemption: 0/3 nodes are available.",
            "no node has a GPU free for it (3 nodes checked)",
        ),
        (
            "0/3 nodes are available: 1 Insufficient memory, 2 node(s) had untolerated taint {team: vision}. x",
            "no node fits; of 3: 1 with too little free memory; 2 with a taint it does not tolerate (team: vision)",
        ),
        (
            "0/3 nodes are available: 3 node(s) were unschedulable. preemption: no",
            "no node fits; of 3: 3 closed to new pods",
        ),
    ],
)
def test_the_schedulers_words_become_ours(message: str, words: str) -> None:
    waiting = pod("actor", phase="Pending", resources={"limits": {"nvidia.com/gpu": "1"}})
    waiting["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "message": message}]
    assert reasons.waiting(waiting) == words


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("pull access denied, authorization failed", "the registry wants credentials (see imagePullSecrets)"),
        ("manifest unknown", "the registry does not have it"),
        ("dial tcp: lookup x: no such host", "its registry does not answer"),
    ],
)
def test_an_image_that_cannot_be_pulled_says_what_is_wrong(message: str, words: str) -> None:
    state = {"waiting": {"reason": "ErrImagePull", "message": message}}
    assert reasons.waiting(pod("actor", phase="Pending", state=state)) == (
        f"the image 'rl:1' cannot be pulled: {words}"
    )


@pytest.mark.parametrize("name", ["callsheet", "callsheet-learner"])
def test_an_image_of_ours_that_cannot_be_pulled_says_how_to_make_it(name: str) -> None:
    waits = pod(
        "actor", phase="Pending", state={"waiting": {"reason": "ErrImagePull", "message": "not found"}}
    )
    image = f"registry.example.com:5000/team/{name}:1.2"
    waits["status"]["containerStatuses"][0]["image"] = image
    assert reasons.waiting(waits) == (
        f"the image {image!r} cannot be pulled: the registry does not have it; how to build it and push it to your "
        "registry: docs/how-to/images.md"
    )


def test_a_volume_that_cannot_be_mounted_is_told_from_the_events() -> None:
    event = {
        "involvedObject": {"uid": "pod-actor-0"},
        "reason": "FailedMount",
        "message": 'MountVolume.SetUp failed for volume "data": no such server',
    }
    state = {"waiting": {"reason": "ContainerCreating"}}
    assert "no such server" in reasons.waiting(pod("actor", phase="Pending", state=state), [event])


def test_missing_rights_are_named() -> None:
    text = 'pods is forbidden: User "jo" cannot list resource "jobs" in API group "batch" in the namespace "team"'
    error = api_error(403, text, what="list jobs", context="prod")
    assert "the right to list jobs.batch in the namespace 'team' is missing; you are 'jo' there" in str(error)
    expired = api_error(401, "Unauthorized", what="list pods", context="prod")
    assert "'prod' did not accept your credentials: they are wrong or have expired" in str(expired)
    absent = api_error(404, 'namespaces "teem" not found', what="create", context="prod")
    assert "there is no namespace 'teem'" in str(absent)
    assert isinstance(api_error(503, "busy", what="list pods", context=""), Unreachable)
    assert isinstance(absent, ApiError)


def test_a_quota_is_told_in_numbers() -> None:
    text = 'pods "x" is forbidden: exceeded quota: small, requested: pods=1, used: pods=3, limited: pods=3'
    assert (
        explain_limit(text)
        == "the namespace's quota 'small' allows pods=3, pods=3 is used and pods=1 more is requested"
    )
    assert explain_limit("something else") == ""


def test_sets_of_indexes_are_read_as_kubernetes_writes_them() -> None:
    assert indexes("") == set()
    assert indexes("0,3-5") == {0, 3, 4, 5}


EXPOSES = [
    {"name": "a", "type": "NodePort"},
    {"name": "b", "type": "LoadBalancer"},
    {"name": "c", "type": "Ingress"},
    {"name": "d"},
]


def exposed_at(objects: dict[tuple[str, str], Object], node: str = "") -> list[str]:
    experiment = {
        "metadata": {"name": "exp"},
        "spec": {"roles": [{"name": "board", "containers": [{"exposes": EXPOSES}]}]},
    }
    config_map = {
        "data": {names.ADDRESSES_FILE: json.dumps({"endpoints": {e["name"]: {"port": 80} for e in EXPOSES}})}
    }
    assert exposed.kinds(experiment) == {"Service", "Ingress"}
    assert exposed.on_nodes(experiment) == {"board"}
    return list(
        exposed.addresses(config_map, experiment, exposed.Exposure(objects, {"board": node})).values()
    )


def test_an_endpoint_has_no_address_until_the_cluster_has_given_one() -> None:
    assert exposed_at({}) == ["", "", "", "exp-d:80"]
    waiting: Object = {"spec": {"ports": [{"port": 80}]}, "status": {"loadBalancer": {}}}
    objects = {("Service", "exp-a"): waiting, ("Service", "exp-b"): waiting, ("Ingress", "exp-c"): waiting}
    assert exposed_at(objects, "10.0.0.1") == ["", "", "", "exp-d:80"]


def test_addresses_are_such_that_a_browser_takes_them() -> None:
    given: Object = {
        "spec": {"ports": [{"port": 80, "nodePort": 31000}]},
        "status": {"loadBalancer": {"ingress": [{"ip": "2001:db8::1"}]}},
    }
    objects = {("Service", "exp-a"): given, ("Service", "exp-b"): given, ("Ingress", "exp-c"): given}
    assert exposed_at(objects, "10.0.0.1") == [
        "10.0.0.1:31000",
        "[2001:db8::1]:80",
        "http://[2001:db8::1]/",
        "exp-d:80",
    ]


def test_a_nodes_address_for_people_outside_is_preferred() -> None:
    inside = {"type": "InternalIP", "address": "10.0.0.1"}
    outside = {"type": "ExternalIP", "address": "203.0.113.1"}
    assert exposed.node_address({"status": {"addresses": [inside, outside]}}) == "203.0.113.1"
    assert exposed.node_address({"status": {"addresses": [inside]}}) == "10.0.0.1"
    assert exposed.node_address({"status": {}}) == ""


def test_a_pod_whose_program_has_ended_is_neither_starting_nor_counted_yet() -> None:
    leaving = pod("actor", state=ended(0))
    leaving["status"]["conditions"] = []
    found = look(pod("learner"), leaving, lifecycle={"success": ["actor"]})
    assert found.status.phase == "Running"
    assert (found.status.replicas[1].ready, found.status.replicas[1].reason) == (
        False,
        "its program has ended (exit code 0)",
    )
    assert found.outcome is None, "its Job has yet to count it"


def test_a_program_that_could_not_be_started_has_the_code_that_a_shell_gives() -> None:
    failed = pod("actor", phase="Failed", state=ended(128, reason="StartError", message="x"))
    found = look(pod("learner"), failed, jobs={"actor": {"failedIndexes": "0"}})
    assert found.outcome is not None
    assert found.outcome.code == 127
    assert found.status.replicas[1].containers[0].exit_code == 127


def test_time_spent_suspended_does_not_count_against_the_deadline() -> None:
    assert look(lifecycle={"deadline": "1m30s", "suspend": True}).outcome is None
    resumed = Record("r1", suspended=50.0)
    annotations = {names.RECORD: resumed.to_text()}
    assert look(lifecycle={"deadline": "1m30s"}, annotations=annotations).outcome is None
    assert look(lifecycle={"deadline": "30s"}, annotations=annotations).outcome is not None


def test_a_run_stays_running_once_every_replica_was_ready() -> None:
    assert look(pod("learner"), pod("actor", phase="Pending")).status.phase == "Starting"
    annotations = {names.RECORD: Record("r1", started=True).to_text()}
    found = look(pod("learner"), pod("actor", phase="Pending"), annotations=annotations)
    assert (found.status.phase, found.record) == ("Running", None)
