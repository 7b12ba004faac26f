"""Building experiments in Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from callsheet import Experiment, InvalidExperiment, UserError
from callsheet.sdk import options
from callsheet.spec import experiment as model
from callsheet.spec import kubernetes


def small() -> Experiment:
    """A learner and eight agents."""
    exp = Experiment("rl")
    learner = exp.role("learner", image="rl:1", command=["python", "learner.py"])
    agent = exp.role("agent", image="rl:1", command=["python", "agent.py"], replicas=8)
    learner.binds("replay-server", "parameter-server").exposes("tensorboard")
    agent.connects("replay-server", "parameter-server").resource_request(cpu=1.5, memory="2G")
    return exp


def test_the_fluent_calls_give_the_experiment_that_the_file_gives() -> None:
    from_file = Experiment.from_yaml("""
        apiVersion: callsheet.dev/v1alpha1
        kind: Experiment
        metadata: {name: rl}
        spec:
          roles:
          - name: learner
            image: rl:1
            command: [python, learner.py]
            binds: [{name: replay-server}, {name: parameter-server}]
            exposes: [{name: tensorboard}]
          - name: agent
            image: rl:1
            command: [python, agent.py]
            replicas: 8
            connects: [replay-server, parameter-server]
            resources: {requests: {cpu: "1.5", memory: 2G}}
        """)

    assert small().validate().spec == from_file.spec


def test_endpoints_are_named_in_any_of_three_ways() -> None:
    exp = Experiment("ways")
    exp.role("a").binds("x", "y").binds(z=9999).binds({"with-dash": 7, "v": None})

    assert exp.spec.spec.roles[0].binds == [
        model.Bind(name="x"),
        model.Bind(name="y"),
        model.Bind(name="z", port=9999),
        model.Bind(name="with-dash", port=7),
        model.Bind(name="v"),
    ]


def test_an_exposed_endpoint_says_how_it_is_reached() -> None:
    role = (
        Experiment("web").role("a").exposes("page", type="Ingress", host="rl.example.com").exposes(plain=80)
    )

    assert role.spec.exposes == [
        model.Expose(name="page", type="Ingress", host="rl.example.com"),
        model.Expose(name="plain", port=80),
    ]


def test_a_mount_may_be_a_part_of_a_volume() -> None:
    role = Experiment("parts").role("a").mount("data", "/data", sub_path="run-1")

    assert role.spec.volume_mounts == [
        kubernetes.VolumeMount(name="data", mount_path="/data", sub_path="run-1")
    ]


def test_env_from_takes_one_source() -> None:
    with pytest.raises(UserError, match="env_from takes one source"):
        Experiment("both").role("a").env_from(secret="x", config_map="y")


def test_a_later_call_for_the_same_name_wins() -> None:
    role = (
        Experiment("twice")
        .role("a", env={"A": "1"})
        .binds("x")
        .binds(x=9)
        .env(A="2", B="3")
        .connects("y", "y")
    )

    assert role.spec.binds == [model.Bind(name="x", port=9)]
    assert [(v.name, v.value) for v in role.spec.env] == [("A", "2"), ("B", "3")]
    assert role.spec.connects == ["y"]


def test_a_group_is_a_role_with_containers() -> None:
    exp = Experiment("sims")
    group = exp.role("simulation", replicas=3).restart("Always").grace("5s")
    group.container("policy", command=["policy"]).binds(policy=9991).connects("sim")
    group.container("sim", command=["sim"]).binds(sim=9992).resource_limit(gpu=1)

    role = exp.validate().spec.spec.roles[0]
    assert [c.name for c in role.group] == ["policy", "sim"]
    assert role.containers[1].resources.limits == {"nvidia.com/gpu": "1"}
    assert (role.restart.policy, role.termination_grace_period) == ("Always", "5s")
    assert [c.name for c in exp.roles["simulation"].containers] == ["policy", "sim"]


def test_pod_settings_add_up() -> None:
    role = Experiment("pods").role("a", command=["true"])
    role.node_selector(pool="cpu").node_selector({"example.com/zone": "b"})
    role.toleration("rl", operator="Exists", effect="NoExecute").toleration("gpu", value="yes")
    role.labels(team="x").annotations(note="y").image_pull_secrets("hub").scale(1, 4)

    spec = role.spec
    assert spec.node_selector == {"pool": "cpu", "example.com/zone": "b"}
    assert [t.key for t in spec.tolerations] == ["rl", "gpu"]
    assert (spec.labels, spec.annotations) == ({"team": "x"}, {"note": "y"})
    assert [s.name for s in spec.image_pull_secrets] == ["hub"]
    assert spec.scale == model.Scale(min=1, max=4)


def test_volumes_files_and_variables_of_the_experiment() -> None:
    exp = Experiment("full", storage="file:///results", workdir="code", namespace="lab", labels={"a": "b"})
    exp.volume("data", host_path={"path": "/data"}).file("config.py", "x = 1").env(A="1").env(B="2")
    exp.lifecycle(success=["a"]).lifecycle(deadline="1h")
    key = kubernetes.EnvSource(secret_key_ref=kubernetes.KeyRef(name="hub", key="token"))
    role = exp.role("a", command=["cat", "{files.config.py}"]).mount("data", "/data", read_only=True)
    role.env(TOKEN=key).env_from(secret="all", prefix="S_").env_from(config_map="more", optional=True)
    role.ready_when(http_get={"port": 80}, period_seconds=2)

    spec = exp.validate().spec.spec
    assert spec.workdir.path == "code"
    assert spec.lifecycle == model.Lifecycle(success=["a"], deadline="1h")
    assert [v.name for v in spec.env] == ["A", "B"]
    assert spec.roles[0].env[0].value_from == key
    assert spec.roles[0].env_from[0].prefix == "S_"
    assert spec.roles[0].readiness_probe is not None
    assert exp.spec.metadata.namespace == "lab"


@pytest.mark.parametrize(
    ("keywords", "fields"),
    [
        (options.ContainerOptions, set(model.ContainerFields.model_fields)),
        (options.RoleOptions, set(model.Role.model_fields) - {"name", "containers"}),
        (options.ExperimentOptions, set(model.ExperimentSpec.model_fields) - {"roles"}),
        (options.LifecycleOptions, set(model.Lifecycle.model_fields)),
        (options.VolumeOptions, set(kubernetes.Volume.model_fields) - {"name"}),
    ],
)
def test_every_field_of_the_schema_is_a_typed_keyword(keywords: type, fields: set[str]) -> None:
    assert keywords.__optional_keys__ == fields


def test_a_mistake_is_reported_by_the_call_that_made_it() -> None:
    role = Experiment("wrong").role("actor")

    with pytest.raises(InvalidExperiment, match=r"spec.roles\[actor\].command\[1\]: 3 is not text"):
        role.set(command=["python", 3])  # type: ignore[list-item]
    with pytest.raises(InvalidExperiment, match="'much' is not a Kubernetes quantity"):
        role.resource_request(memory="much")
    with pytest.raises(InvalidExperiment, match="did you mean image_pull_policy"):
        role.set(image_pull_polcy="Always")  # type: ignore[call-arg]
    with pytest.raises(InvalidExperiment, match="'Sometimes' is not allowed here"):
        role.restart("Sometimes")  # type: ignore[arg-type]
    with pytest.raises(InvalidExperiment, match=r"binds\[x\].port"):
        role.binds(x=70_000)


def test_a_command_in_one_string_is_refused_with_the_list_to_write() -> None:
    with pytest.raises(UserError, match=r"write a list: command=\['python', 'actor.py'\]"):
        Experiment("wrong").role("actor", command="python actor.py")


def test_a_failed_call_changes_nothing() -> None:
    role = Experiment("steady").role("a", command=["true"])
    before = role.spec

    with pytest.raises(InvalidExperiment):
        role.binds("good", {"bad": 0})

    assert role.spec == before


def test_validate_reports_every_mistake_in_the_wiring() -> None:
    exp = Experiment("wiring").lifecycle(success=["lerner"])
    exp.role("learner", command=["true"]).binds("trajectories")
    exp.role("actor", command=["a", "{index}"]).connects("trajectorys")

    with pytest.raises(InvalidExperiment) as raised:
        exp.validate()

    assert len(raised.value.problems) == 2
    assert "trajectories" in str(raised.value)


def test_names_are_taken_once() -> None:
    exp = Experiment("once")
    role = exp.role("a")
    role.container("x")

    with pytest.raises(UserError, match="already has a role 'a'"):
        exp.role("a")
    with pytest.raises(UserError, match="already has a container 'x'"):
        role.container("x")


def test_an_experiment_without_roles_says_so() -> None:
    with pytest.raises(UserError, match="has no role"):
        _ = Experiment("empty").spec


def test_a_file_can_be_read_changed_and_written(tmp_path: Path) -> None:
    file = tmp_path / "experiment.yaml"
    file.write_text(small().to_yaml())

    exp = Experiment.from_file(file)
    exp.roles["agent"].set(replicas=2)

    assert exp.base == tmp_path
    assert Experiment.from_yaml(exp.to_yaml()).spec.spec.roles[1].replicas == 2


def test_two_experiments_in_one_file_are_too_many() -> None:
    text = small().to_yaml()
    with pytest.raises(UserError, match="contains 2 experiments"):
        Experiment.from_yaml(f"{text}\n---\n{text.replace('name: rl', 'name: other')}")


def test_paths_begin_where_the_python_file_is(tmp_path: Path) -> None:
    assert Experiment("here").base == Path(__file__).resolve().parent
    assert Experiment("there", base=tmp_path).base == tmp_path
    assert Experiment.from_yaml(small().to_yaml()).base == Path(__file__).resolve().parent


def test_the_variable_chooses_the_backend_unless_the_call_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLSHEET_ON", "nowhere")

    with pytest.raises(UserError, match="no backend 'nowhere'"):
        small().plan()
    assert small().plan(on="local").experiment == "rl"


def test_the_plan_and_its_rendering_start_nothing() -> None:
    plan = small().plan()

    assert [len(role.replicas) for role in plan.roles] == [1, 8]
    assert "agent.py" in small().render()


def test_importing_callsheet_loads_nothing_heavy() -> None:
    code = (
        "import sys, callsheet; assert not {'pydantic', 'yaml', 'click'} & set(sys.modules);"
        "callsheet.Experiment; assert 'Experiment' in dir(callsheet); print(callsheet.__version__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip()


def test_a_name_that_callsheet_does_not_have() -> None:
    import callsheet

    with pytest.raises(AttributeError, match="no attribute 'Experment'"):
        _ = callsheet.Experment  # type: ignore[attr-defined]
