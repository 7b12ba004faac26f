"""Mistakes in an experiment whose shape is right: names, wiring, braces, and the parts that Kubernetes defines."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from strategies import experiments

from callsheet.errors import Problem
from callsheet.plan.check import check_experiment
from callsheet.spec.experiment import Experiment


def experiment(
    *roles: dict[str, Any], name: str = "rl", metadata: dict[str, Any] | None = None, **spec: Any
) -> Experiment:
    data = {"metadata": {"name": name, **(metadata or {})}, "spec": {"roles": list(roles), **spec}}
    return Experiment.model_validate(data)


def one(*roles: dict[str, Any], **more: Any) -> Problem:
    """The only problem of an experiment with these roles."""
    found = check_experiment(experiment(*roles, **more))
    assert len(found) == 1, found
    return found[0]


LEARNER = {"name": "learner", "binds": [{"name": "trajectories", "port": 9999}]}


@settings(max_examples=25, deadline=None)
@given(experiments())
def test_a_valid_experiment_has_no_mistakes(made: Experiment) -> None:
    assert check_experiment(made) == []


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("Actor", "write actor"),
        ("my_actor", "write my-actor"),
        ("actor-", "write actor"),
        ("3d", "lowercase letters"),
        ("actor\n", "write actor"),
        ("", "lowercase letters"),
        ("a" * 64, "use at most 63"),
    ],
)
def test_names_are_dns_labels(name: str, fix: str) -> None:
    here = {"name": "a"}
    places = {
        "metadata.name": experiment(here, name=name),
        "spec.roles": experiment({"name": name}),
        "spec.roles[a].containers": experiment({"name": "a", "containers": [{"name": name}]}),
        "spec.roles[a].binds": experiment({**here, "binds": [{"name": name}]}),
        "spec.roles[a].exposes": experiment({**here, "exposes": [{"name": name}]}),
        "spec.volumes": experiment(here, volumes=[{"name": name, "emptyDir": {}}]),
    }
    for path, made in places.items():
        (problem,) = check_experiment(made)
        assert problem.path.startswith(path)
        assert problem.path.endswith("name")
        assert fix in problem.fix


def test_a_role_with_the_experiment_fits_into_the_name_of_a_stateful_set() -> None:
    assert check_experiment(experiment({"name": "r" * 32, "replicas": 100_000}, name="e" * 19)) == []
    problem = one({"name": "r" * 33}, name="e" * 19)
    assert problem.path == f"spec.roles[{'r' * 33}].name"
    assert "has 53 characters; Kubernetes allows 52" in problem.message


def test_an_endpoint_with_the_experiment_fits_into_the_name_of_a_service() -> None:
    assert check_experiment(experiment({"name": "a", "binds": [{"name": "b" * 43}]}, name="e" * 19)) == []
    assert "Kubernetes allows 63" in one({"name": "a", "binds": [{"name": "b" * 44}]}, name="e" * 19).message


def test_an_experiments_name_that_leaves_no_room_is_one_mistake() -> None:
    problem = one({"name": "a", "binds": [{"name": "t" * 20}]}, {"name": "b"}, name="e" * 52)
    assert problem.path == "metadata.name"
    assert "leaves no room" in problem.message


@pytest.mark.parametrize(
    ("made", "path"),
    [
        (experiment({"name": "a"}, {"name": "a"}), "spec.roles[1].name"),
        (
            experiment({"name": "a", "containers": [{"name": "x"}, {"name": "x"}]}),
            "spec.roles[a].containers[1].name",
        ),
        (
            experiment({"name": "a", "env": [{"name": "X", "value": "1"}, {"name": "X", "value": "2"}]}),
            "spec.roles[a].env[1].name",
        ),
        (
            experiment({"name": "a"}, env=[{"name": "X", "value": "1"}, {"name": "X", "value": "2"}]),
            "spec.env[1].name",
        ),
        (
            experiment({"name": "a"}, volumes=[{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}]),
            "spec.volumes[1].name",
        ),
    ],
)
def test_names_are_unique(made: Experiment, path: str) -> None:
    (problem,) = check_experiment(made)
    assert problem.path == path
    assert "duplicate" in problem.message


@pytest.mark.parametrize(
    ("second", "path"),
    [
        (
            {"name": "other", "binds": [{"name": "trajectories"}]},
            "spec.roles[other].binds[trajectories].name",
        ),
        (
            {"name": "other", "exposes": [{"name": "trajectories"}]},
            "spec.roles[other].exposes[trajectories].name",
        ),
        (
            {"name": "other", "containers": [{"name": "x", "binds": [{"name": "trajectories"}]}]},
            "spec.roles[other].containers[x].binds[trajectories].name",
        ),
    ],
)
def test_an_endpoint_is_bound_by_one_role(second: dict[str, Any], path: str) -> None:
    problem = one(LEARNER, second)
    assert problem.path == path
    assert "already bound by role 'learner'" in problem.message
    assert "connects: [trajectories]" in problem.fix


def test_an_endpoint_is_bound_once_in_a_container() -> None:
    assert (
        one({"name": "a", "binds": [{"name": "t"}], "exposes": [{"name": "t"}]}).fix == "remove one of them"
    )


@pytest.mark.parametrize("name", ["files", "mounts"])
def test_an_endpoint_may_not_hide_files_and_mounts(name: str) -> None:
    assert f"{name!r} is reserved" in one({"name": "a", "binds": [{"name": name}]}).message


def test_every_connect_has_a_bind() -> None:
    problem = one(LEARNER, {"name": "actor", "connects": ["trajectory"]})
    assert problem.path == "spec.roles[actor].connects[0]"
    assert problem.fix == "did you mean trajectories?"
    assert "add binds: [{name: xyz}]" in one(LEARNER, {"name": "actor", "connects": ["xyz"]}).fix


def test_an_exposed_endpoint_can_be_connected_to() -> None:
    web = {"name": "a", "exposes": [{"name": "web"}]}
    assert check_experiment(experiment(web, {"name": "b", "connects": ["web"]})) == []


def test_ports_do_not_clash_inside_a_pod() -> None:
    group = [
        {"name": "policy", "binds": [{"name": "p", "port": 80}]},
        {"name": "sim", "exposes": [{"name": "s", "port": 80}]},
    ]
    problem = one({"name": "a", "containers": group})
    assert problem.path == "spec.roles[a].containers[sim].exposes[s].port"
    assert problem.message == "port 80 is already used by the endpoint 'p' of the same replica"


def test_ports_of_different_roles_do_not_clash() -> None:
    other = {"name": "b", "binds": [{"name": "x", "port": 9999}]}
    assert check_experiment(experiment(LEARNER, other)) == []


def test_a_name_given_twice_is_a_mistake_where_it_stands_again() -> None:
    twice = one(LEARNER, {"name": "actor", "connects": ["trajectories", "trajectories"]})
    assert twice.path == "spec.roles[actor].connects[1]"
    assert twice.message == "duplicate 'trajectories', first used as number 1 in connects"
    again = one({"name": "a"}, lifecycle={"success": ["a", "a"]})
    assert again.path == "spec.lifecycle.success[1]"


def test_without_any_endpoint_the_way_out_is_a_whole_sentence() -> None:
    problem = one({"name": "a", "args": ["{trajectories.addr}"]})
    assert problem.fix == "write {{trajectories.addr}} for a literal {trajectories.addr}"


@pytest.mark.parametrize(
    ("text", "message", "fix"),
    [
        ("{indx}", "there is no 'indx'", "did you mean {index}?"),
        ("{trajectores.addr}", "there is no 'trajectores'", "did you mean {trajectories.addr}?"),
        ("{trajectories.adr}", "there is no 'adr'", "did you mean {trajectories.addr}?"),
        ("{params.addr}", "neither binds nor connects to 'params'", "add params to its connects"),
        ("{trajectories.bind}", "does not bind 'trajectories'", "use {trajectories.addr}"),
        ("{files.confg.py}", "there is no 'confg.py'", "did you mean {files.config.py}?"),
        ("{mounts.data}", "there is no 'data'", "volumeMounts"),
        ("a\0b", "NUL", "remove it"),
    ],
)
def test_what_stands_in_braces_resolves_in_its_container(text: str, message: str, fix: str) -> None:
    learner = {"name": "learner", "binds": [{"name": "trajectories"}, {"name": "params"}]}
    more: dict[str, Any] = {"files": {"config.py": ""}, "volumes": [{"name": "data", "emptyDir": {}}]}
    for key, value in (("command", [text]), ("args", [text]), ("env", [{"name": "X", "value": text}])):
        problem = one(learner, {"name": "actor", "connects": ["trajectories"], key: value}, **more)
        assert problem.path == f"spec.roles[actor].{'env[X].value' if key == 'env' else key + '[0]'}"
        assert message in problem.message
        assert fix in problem.fix


def test_right_words_and_the_users_own_braces_are_no_mistakes() -> None:
    learner = {
        **LEARNER,
        "command": ["{trajectories.bind}", "{files.c}", "{mounts.v}", '{"json": {"a": 1}}', "${HOME}"],
    }
    learner |= {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    actor = {
        "name": "actor",
        "connects": ["trajectories"],
        "args": ["{trajectories.any}", "{{index}}", "{storage}"],
    }
    made = experiment(learner, actor, files={"c": ""}, volumes=[{"name": "v", "emptyDir": {}}])
    assert check_experiment(made) == []


def test_a_variable_of_the_experiment_resolves_in_every_container_that_takes_it() -> None:
    env = [{"name": "T", "value": "{trajectories.addr}"}]
    problem = one(LEARNER, {"name": "actor"}, env=env)
    assert problem.path == "spec.env[T].value"
    assert "role 'actor' uses {trajectories.addr}" in problem.message
    own = {"name": "actor", "env": [{"name": "T", "value": ""}]}
    assert check_experiment(experiment(LEARNER, own, env=env)) == []
    assert (
        check_experiment(experiment(LEARNER, {"name": "actor", "connects": ["trajectories"]}, env=env)) == []
    )


def test_a_connect_that_is_misspelled_is_not_told_again_where_the_endpoint_is_used() -> None:
    actor = {"name": "actor", "connects": ["trajectory"], "args": ["{trajectories.addr}"]}
    assert one(LEARNER, actor).path == "spec.roles[actor].connects[0]"


def test_success_names_roles() -> None:
    problem = one(LEARNER, lifecycle={"success": ["lerner"]})
    assert (problem.path, problem.fix) == ("spec.lifecycle.success[0]", "did you mean learner?")


def test_a_role_that_never_ends_cannot_succeed() -> None:
    always = {"name": "a", "restart": {"policy": "Always"}}
    assert "never ends" in one(always, lifecycle={"success": ["a"]}).message


@pytest.mark.parametrize(
    ("fields", "path", "fix"),
    [
        ({"replicas": 1, "scale": {"min": 2, "max": 4}}, "replicas", "write replicas: 2"),
        ({"replicas": 5, "scale": {"min": 2, "max": 4}}, "replicas", "write replicas: 4"),
        ({"scale": {"min": 2, "max": 4}}, "scale", "write replicas: 2"),
        ({"replicas": 3, "scale": {"min": 4, "max": 2}}, "scale", "swap"),
    ],
)
def test_elastic_bounds_hold(fields: dict[str, Any], path: str, fix: str) -> None:
    problem = one({"name": "a", **fields})
    assert problem.path == f"spec.roles[a].{path}"
    assert fix in problem.fix


def test_each_inline_field_beside_containers_is_a_mistake() -> None:
    role = {
        "name": "a",
        "command": ["x"],
        "tty": True,
        "args": [],
        "containers": [{"name": "x"}, {"name": "y"}],
    }
    found = check_experiment(experiment(role))
    assert [p.path for p in found] == ["spec.roles[a].command", "spec.roles[a].tty"]
    assert found[0].fix == "move it into one of the containers: x, y"


KEY = {"name": "s", "key": "k"}


@pytest.mark.parametrize(
    ("variable", "path", "message"),
    [
        ({"name": "2X", "value": ""}, "env[2X].name", "not a valid variable name"),
        ({"name": "A=B", "value": ""}, "env[0].name", "not a valid variable name"),
        ({"name": "CALLSHEET_X", "value": ""}, "env[CALLSHEET_X].name", "is reserved"),
        ({"name": "X"}, "env[X]", "has no value"),
        (
            {"name": "X", "value": "", "valueFrom": {"secretKeyRef": KEY}},
            "env[X]",
            "both value and valueFrom",
        ),
        ({"name": "X", "valueFrom": {}}, "env[X].valueFrom", "is missing"),
        (
            {"name": "X", "valueFrom": {"secretKeyRef": KEY, "configMapKeyRef": KEY}},
            "env[X].valueFrom",
            "cannot be combined",
        ),
        (
            {"name": "X", "valueFrom": {"secretKeyRef": {"name": "../x", "key": "k"}}},
            "env[X].valueFrom.secretKeyRef.name",
            "'../x' is not a valid name",
        ),
        (
            {"name": "X", "valueFrom": {"configMapKeyRef": {"name": "c", "key": ".."}}},
            "env[X].valueFrom.configMapKeyRef.key",
            "'..' is not a valid key",
        ),
        (
            {"name": "X", "valueFrom": {"resourceFieldRef": {"resource": "cpu"}}},
            "env[X].valueFrom.resourceFieldRef.resource",
            "'cpu' is not a container resource",
        ),
        (
            {"name": "X", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "0"}}},
            "env[X].valueFrom.resourceFieldRef.divisor",
            "divisor cannot be 0",
        ),
        (
            {
                "name": "X",
                "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "containerName": "b"}},
            },
            "env[X].valueFrom.resourceFieldRef.containerName",
            "no container 'b'",
        ),
    ],
)
def test_variables_are_well_formed(variable: dict[str, Any], path: str, message: str) -> None:
    problem = one({"name": "a", "env": [variable]})
    assert problem.path == f"spec.roles[a].{path}"
    assert message in problem.message


def test_variables_of_the_experiment_are_checked_too() -> None:
    assert one({"name": "a"}, env=[{"name": "X"}]).path == "spec.env[X]"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({}, "one of configMapRef, secretRef is missing"),
        ({"secretRef": {"name": "s"}, "configMapRef": {"name": "c"}}, "cannot be combined"),
        ({"secretRef": {"name": "S"}}, "not a valid name"),
    ],
)
def test_env_from_has_one_source(source: dict[str, Any], message: str) -> None:
    assert message in one({"name": "a", "envFrom": [source]}).message


@pytest.mark.parametrize(
    ("volume", "message"),
    [
        ({}, "is missing"),
        ({"emptyDir": {}, "hostPath": {"path": "/x"}}, "emptyDir and hostPath cannot be combined"),
        ({"hostPath": {"path": "x"}}, "not an absolute path"),
        ({"secret": {"secretName": "../x"}}, "not a valid name"),
        ({"configMap": {"name": "X"}}, "not a valid name"),
        ({"persistentVolumeClaim": {"claimName": "a/b"}}, "not a valid name"),
    ],
)
def test_a_volume_has_one_kind(volume: dict[str, Any], message: str) -> None:
    assert message in one({"name": "a"}, volumes=[{"name": "v", **volume}]).message


@pytest.mark.parametrize(
    ("mount", "path", "message"),
    [
        ({"name": "scrach", "mountPath": "/x"}, "name", "there is no volume 'scrach'"),
        ({"name": "scratch", "mountPath": "x"}, "mountPath", "not an absolute path"),
        ({"name": "scratch", "mountPath": "/x", "subPath": "../y"}, "subPath", "points outside the volume"),
    ],
)
def test_a_mount_names_a_volume_and_an_absolute_path(mount: dict[str, Any], path: str, message: str) -> None:
    volumes = [{"name": "scratch", "emptyDir": {}}]
    problem = one({"name": "a", "volumeMounts": [mount]}, volumes=volumes)
    assert problem.path == f"spec.roles[a].volumeMounts[{mount['name']}].{path}"
    assert message in problem.message


def test_two_volumes_are_not_mounted_at_one_path() -> None:
    mounts = [{"name": "v", "mountPath": "/x"}, {"name": "w", "mountPath": "/x"}]
    volumes = [{"name": "v", "emptyDir": {}}, {"name": "w", "emptyDir": {}}]
    assert "already mounted at '/x'" in one({"name": "a", "volumeMounts": mounts}, volumes=volumes).message


@pytest.mark.parametrize(
    ("probe", "path", "message"),
    [
        ({}, "", "one of exec, httpGet, tcpSocket is missing"),
        ({"exec": {"command": ["x"]}, "tcpSocket": {"port": 80}}, "", "cannot be combined"),
        ({"httpGet": {"port": "trajectory"}}, ".httpGet.port", "binds no endpoint 'trajectory'"),
        ({"tcpSocket": {"port": 0}}, ".tcpSocket.port", "0 is not a port"),
    ],
)
def test_a_probe_asks_one_question_of_a_port_that_is_there(
    probe: dict[str, Any], path: str, message: str
) -> None:
    problem = one({**LEARNER, "readinessProbe": probe})
    assert problem.path == f"spec.roles[learner].readinessProbe{path}"
    assert message in problem.message


def test_a_probe_may_name_an_endpoint() -> None:
    assert (
        check_experiment(experiment({**LEARNER, "readinessProbe": {"tcpSocket": {"port": "trajectories"}}}))
        == []
    )


@pytest.mark.parametrize("name", ["a/b", "..", "", "a b", "x\n"])
def test_a_files_name_has_no_folders(name: str) -> None:
    assert "not a valid file name" in one({"name": "a"}, files={name: ""}).message


@pytest.mark.parametrize(
    "storage", ["s3://bucket/p", "gs://b", "az://c/p", "file:///folder", "pvc://claim/path"]
)
def test_storage_may_be_a_bucket_a_folder_or_a_claim(storage: str) -> None:
    assert check_experiment(experiment({"name": "a"}, storage=storage)) == []


@pytest.mark.parametrize(
    ("storage", "fix"),
    [
        ("/data", "write file:///"),
        ("http://x/y", "s3://bucket/prefix"),
        ("s3://", "s3://bucket/prefix"),
        ("s3:///x", "s3://bucket/prefix"),
        ("file://data", "write file:///data"),
        ("s3://[", "s3://bucket/prefix"),
        ("", "s3://bucket/prefix"),
    ],
)
def test_storage_elsewhere_is_a_mistake(storage: str, fix: str) -> None:
    problem = one({"name": "a"}, storage=storage)
    assert problem.path == "spec.storage"
    assert fix in problem.fix


@pytest.mark.parametrize("amount", ["500m", "1.5"])
def test_gpus_are_whole(amount: str) -> None:
    problem = one({"name": "a", "resources": {"limits": {"nvidia.com/gpu": amount}}})
    assert problem.path == "spec.roles[a].resources.limits['nvidia.com/gpu']"
    assert "whole number of GPUs" in problem.message


def test_what_is_counted_is_whole() -> None:
    problem = one({"name": "a", "resources": {"requests": {"vendor.example/fpga": "500m"}}})
    assert "500m is not a whole number of vendor.example/fpga" in problem.message
    assert "500m" in one({"name": "a", "resources": {"limits": {"amd.com/gpu": "500m"}}}).message


def test_a_request_is_not_more_than_its_limit() -> None:
    resources = {"requests": {"cpu": "1500m", "memory": "1Gi"}, "limits": {"cpu": 1, "memory": "1024Mi"}}
    assert one({"name": "a", "resources": resources}).path == "spec.roles[a].resources.requests.cpu"


@pytest.mark.parametrize("key", ["", "a b", "-a", "x/y/z", "A/", "Upper.case/x", "k" * 64])
def test_keys_of_labels_are_what_kubernetes_takes(key: str) -> None:
    for field in ("labels", "annotations", "nodeSelector"):
        assert "not a valid Kubernetes key" in one({"name": "a", field: {key: "x"}}).message
    for field in ("labels", "annotations"):
        assert one({"name": "a"}, metadata={field: {key: "x"}}).path.startswith(f"metadata.{field}")


@pytest.mark.parametrize("value", ["a b", "-a", "v" * 64, "x/y"])
def test_values_of_labels_are_what_kubernetes_takes(value: str) -> None:
    assert "label value" in one({"name": "a", "labels": {"k": value}}).message
    assert check_experiment(experiment({"name": "a", "annotations": {"example.com/k": value}})) == []
