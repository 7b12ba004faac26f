"""What a Symphony script's calls become."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_backend import FakeBackend, FakeRun
from hypothesis import given, settings
from hypothesis import strategies as st

from callsheet.backends.base import Status
from callsheet.compat.symphony.engine import Cluster
from callsheet.compat.symphony.kube import (
    GKEDispatcher,
    KubeCluster,
    KubeEmptyDirVolume,
    KubeExperimentSpec,
    KubeProcessSpec,
)
from callsheet.compat.symphony.spec import ExperimentSpec
from callsheet.compat.symphony.subproc import SubprocCluster
from callsheet.compat.symphony.tmux import TmuxCluster
from callsheet.compat.symphony.translate import escape
from callsheet.errors import InvalidExperiment, UserError
from callsheet.plan.template import fill, parse
from callsheet.spec.experiment import Role


def role(exp: ExperimentSpec, name: str) -> Role:
    """One role of the translated experiment."""
    spec = exp.to_callsheet().validate().spec
    return next(role for role in spec.spec.roles if role.name == name)


def env(of: Any) -> dict[str, str]:
    return {variable.name: variable.value for variable in of.env}


@pytest.fixture
def exp() -> KubeExperimentSpec:
    """The experiment of Symphony's guide."""
    exp = Cluster.new("kubernetes").new_experiment("rl")
    learner = exp.new_process(
        "learner", container_image="ubuntu:16.04", command="python", args=["learner.py"]
    )
    agent = exp.new_process(
        "agent", container_image="ubuntu:16.04", command="python", args=["agent.py", "--env", "half-cheetah"]
    )
    learner.binds("replay-server")
    learner.binds("parameter-server")
    agent.connects("replay-server")
    agent.connects("parameter-server")
    learner.exposes("tensorboard")
    return exp


def test_processes_become_roles_with_their_commands(exp: KubeExperimentSpec) -> None:
    agent = role(exp, "agent")

    assert (agent.image, agent.command) == ("ubuntu:16.04", ["python"])
    assert agent.args == ["agent.py", "--env", "half-cheetah"]
    assert agent.connects == ["replay-server", "parameter-server"]
    assert [bind.name for bind in role(exp, "learner").binds] == ["replay-server", "parameter-server"]
    assert [(e.name, e.type) for e in role(exp, "learner").exposes] == [("tensorboard", "LoadBalancer")]


def test_addresses_come_in_symphonys_variables_too(exp: KubeExperimentSpec) -> None:
    plan = exp.to_callsheet().plan(on="local")
    learner, agent = (plan.environment(r, r.replicas[0], 0) for r in plan.roles)

    assert agent["SYMPH_REPLAY_SERVER_ADDR"] == learner["CALLSHEET_REPLAY_SERVER_ADDR"]
    assert (
        agent["SYMPH_REPLAY_SERVER_ADDR"]
        == f"{agent['SYMPH_REPLAY_SERVER_HOST']}:{agent['SYMPH_REPLAY_SERVER_PORT']}"
    )
    assert {"SYMPH_TENSORBOARD_HOST", "SYMPH_TENSORBOARD_PORT", "SYMPH_TENSORBOARD_ADDR"} <= set(learner)
    assert (learner["SYMPHONY_ROLE"], agent["SYMPHONY_ROLE"]) == ("learner", "agent")


@pytest.mark.parametrize("name", ["kubernetes", "kube", "Kube"])
def test_kubernetes_has_two_names(name: str) -> None:
    assert isinstance(Cluster.new(name), KubeCluster)


def test_a_cluster_that_does_not_exist() -> None:
    with pytest.raises(UserError, match=r"no cluster 'slurm'\n.*kubernetes, kube, tmux, subproc, docker"):
        Cluster.new("slurm")


def test_without_a_cluster_launch_names_the_way_to_this_machine(
    exp: KubeExperimentSpec, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("CALLSHEET_ON", raising=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nowhere"))

    with pytest.raises(UserError, match=r"there is no kubeconfig.*\n.*or run .*CALLSHEET_ON=local python"):
        KubeCluster().launch(exp)


def test_services_are_named_one_by_one_in_a_list_or_with_ports() -> None:
    exp = KubeExperimentSpec("ports")
    process = exp.new_process("a", command=["true"])
    process.binds("one")
    process.binds(["two", "three"])
    process.binds({"four": 4444, "five": None})

    assert [(b.name, b.port) for b in role(exp, "a").binds] == [
        ("one", None),
        ("two", None),
        ("three", None),
        ("four", 4444),
        ("five", None),
    ]


def test_connecting_with_a_port_is_refused() -> None:
    with pytest.raises(UserError, match=r"give the port where it is bound: binds\(\{'x': 9\}\)"):
        KubeProcessSpec("a").connects({"x": 9})


def test_a_port_range_is_used_up_in_order() -> None:
    exp = KubeExperimentSpec("ports", port_range=range(7000, 7003))
    exp.new_process("a", command=["true"]).binds({"x": None, "y": 7000, "z": None})

    assert {b.name: b.port for b in role(exp, "a").binds} == {"x": 7001, "y": 7000, "z": 7002}
    exp.get_process("a").binds("too-many")
    with pytest.raises(UserError, match="2 free ports for 3 services"):
        exp.compile()


def test_a_service_may_be_bound_and_exposed() -> None:
    exp = KubeExperimentSpec("both")
    process = exp.new_process("a", command=["true"])
    process.binds({"web": 80})
    process.exposes("web")

    made = role(exp, "a")
    assert (made.binds, [(e.name, e.port) for e in made.exposes]) == ([], [("web", 80)])


def test_resources_take_mem_and_memory() -> None:
    exp = KubeExperimentSpec("resources")
    process = exp.new_process("a", command=["true"])
    process.resource_request(cpu=1.5, mem="2G")
    process.resource_limit(cpu=2, memory="4G", gpu=1)

    made = role(exp, "a").resources
    assert made.requests == {"cpu": "1.5", "memory": "2G"}
    assert made.limits == {"cpu": "2", "memory": "4G", "nvidia.com/gpu": "1"}
    with pytest.raises(UserError, match="both memory"):
        process.resource_request(memory="1G", mem="2G")


def test_pod_settings_of_a_process_that_stands_alone() -> None:
    exp = KubeExperimentSpec("pods")
    process = exp.new_process("a", command=["true"])
    process.node_selector(key="surreal-node", value="agent")
    process.add_toleration(key="surreal", operator="Exists", effect="NoExecute")
    process.restart_policy("Never")
    process.add_labels(team="x")
    process.add_label("tier", "y")
    process.image_pull_policy("Always")

    made = role(exp, "a")
    assert made.node_selector == {"surreal-node": "agent"}
    assert [(t.key, t.operator, t.effect) for t in made.tolerations] == [("surreal", "Exists", "NoExecute")]
    assert (made.restart.policy, made.image_pull_policy) == ("Never", "Always")
    assert made.labels == {"team": "x", "tier": "y"}


def test_a_group_is_one_role_and_takes_the_pod_settings() -> None:
    exp = KubeExperimentSpec("groups")
    nonagent = exp.new_process_group("nonagent")
    learner = nonagent.new_process(
        "learner", container_image="rl:1", command=["python"], args=["learner.py", 3]
    )
    replay = nonagent.new_process("replay", container_image="rl:1", command=["python"], args=["replay.py"])
    nonagent.node_selector(key="surreal-node", value="nonagent-cpu")
    nonagent.add_toleration(key="surreal", operator="Exists", effect="NoExecute")
    nonagent.image_pull_policy("Never")
    nonagent.set_env("SEED", 7)
    learner.resource_request(cpu=6)
    replay.binds("sampler")

    made = role(exp, "nonagent")
    assert [c.name for c in made.group] == ["learner", "replay"]
    assert made.node_selector == {"surreal-node": "nonagent-cpu"}
    assert made.containers[0].args == ["learner.py", "3"]
    assert all(c.image_pull_policy == "Never" and env(c)["SEED"] == "7" for c in made.group)
    assert env(made.containers[1])["SYMPHONY_ROLE"] == "replay"
    assert exp.list_all_processes() == [learner, replay]


@pytest.mark.parametrize(
    "call", ["restart_policy", "add_label", "add_toleration", "node_selector", "pod_yml"]
)
def test_a_pod_setting_on_a_process_in_a_group_names_the_group(call: str) -> None:
    process = KubeExperimentSpec("groups").new_process_group("nonagent").new_process("learner")
    arguments = {"restart_policy": ["Never"], "add_label": ["a", "b"], "node_selector": ["a", "b"]}

    with pytest.raises(UserError, match=f"use {call} of the group 'nonagent'"):
        getattr(process, call)(*arguments.get(call, []))


def test_a_process_of_its_own_cannot_join_a_group() -> None:
    group = KubeExperimentSpec("groups").new_process_group("g")

    with pytest.raises(UserError, match="standalone=False"):
        group.add_process(KubeProcessSpec("a"))
    group.add_process(KubeProcessSpec("b", standalone=False))
    assert [p.name for p in group.list_processes()] == ["b"]


def test_mounts_become_volumes_of_the_experiment() -> None:
    exp = KubeExperimentSpec("mounts")
    process = exp.new_process("a", command=["true"])
    process.mount_nfs("nfs.example.com", "/export", "/mnt/nfs")
    process.mount_host_path("/data", "/mnt/data", "Directory", name="data")
    process.mount_secret("hub", "/etc/hub", defaultMode=256)
    process.mount_empty_dir("scratch", False, "/scratch")
    process.mount_shared_memory()
    process.mount_volume(KubeEmptyDirVolume("more", memory=True), "/more")

    spec = exp.to_callsheet().validate().spec.spec
    volumes = {volume.name: volume for volume in spec.volumes}
    assert list(volumes) == ["nfs-example-com", "data", "hub", "scratch", "devshm", "more"]
    assert volumes["devshm"].empty_dir is not None
    assert volumes["devshm"].empty_dir.medium == "Memory"
    assert volumes["hub"].secret is not None
    assert volumes["hub"].secret.default_mode == 256
    assert [m.mount_path for m in spec.roles[0].volume_mounts][-2:] == ["/dev/shm", "/more"]


def test_namesakes_in_two_pods_stay_two_volumes() -> None:
    exp = KubeExperimentSpec("mounts")
    for name, path in (("a", "/one"), ("b", "/two"), ("c", "/one")):
        exp.new_process(name, command=["true"]).mount_host_path(path, "/mnt", name="data")

    spec = exp.to_callsheet().validate().spec.spec
    assert {v.name: v.host_path.path for v in spec.volumes if v.host_path} == {
        "data": "/one",
        "b-data": "/two",
    }
    assert [r.volume_mounts[0].name for r in spec.roles] == ["data", "b-data", "data"]


def test_raw_yaml_becomes_fields_where_there_is_one_and_a_patch_otherwise() -> None:
    exp = KubeExperimentSpec("raw")
    process = exp.new_process("a", container_image="old", command=["true"])
    process.pod_yml.data.spec.hostNetwork = True
    process.pod_yml.data["spec"]["nodeSelector"] = {"pool": "gpu"}
    process.pod_yml.set_attr(
        {"metadata": {"annotations": {"x": "y"}}, "spec": {"dnsConfig": {"options": []}}}
    )
    process.container_yml.data.image = "new"
    process.container_yml.set_attr({"lifecycle": {"preStop": {"exec": {"command": ["sync"]}}}})

    made = role(exp, "a")
    assert made.pod_patch == {"spec": {"hostNetwork": True, "dnsConfig": {"options": []}}}
    assert (made.node_selector, made.annotations) == ({"pool": "gpu"}, {"x": "y"})
    assert made.image == "new"
    assert made.container_patch == {"lifecycle": {"preStop": {"exec": {"command": ["sync"]}}}}
    assert "hostNetwork: true" in process.pod_yml.yml()


@pytest.mark.parametrize("name", ["My_Exp", "exp_1", "", "1st", "a" * 64])
def test_names_are_dns_labels(name: str) -> None:
    with pytest.raises(UserError, match="is not a DNS label"):
        KubeExperimentSpec(name)
    with pytest.raises(UserError, match="is not a DNS label"):
        KubeExperimentSpec("ok").new_process(name)
    with pytest.raises(UserError, match="is not a DNS label"):
        KubeProcessSpec("ok").binds(name)


def test_a_bad_name_comes_with_a_good_one() -> None:
    with pytest.raises(UserError, match="'replay-server'"):
        KubeProcessSpec("Replay_Server")


def test_a_connection_that_nobody_binds_is_found_before_the_launch() -> None:
    exp = KubeExperimentSpec("wiring")
    exp.new_process("a", command=["true"]).connects("nowhere")

    with pytest.raises(InvalidExperiment, match="nowhere"):
        exp.compile()


def test_an_empty_experiment_or_group_says_what_is_missing() -> None:
    exp = KubeExperimentSpec("empty")

    with pytest.raises(UserError, match="experiment 'empty' has no process"):
        exp.compile()
    exp.new_process("a", command=["true"])
    exp.new_process_group("g")
    with pytest.raises(UserError, match="group 'g' has no process"):
        exp.compile()


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_a_spec_can_be_written_and_read_back(exp: KubeExperimentSpec, form: str, tmp_path: Path) -> None:
    group = exp.new_process_group("group")
    group.new_process("inner", command=["true"], env={"A": 1}).mount_nfs("server", "/x", "/y")
    group.node_selector("pool", "cpu")
    exp.get_process("agent").resource_request(cpu=2, memory="1G")
    file = tmp_path / "spec"

    getattr(exp, f"dump_{form}_file")(file)
    again = getattr(KubeExperimentSpec, f"load_{form}_file")(file)

    assert again.compile() == exp.compile()
    assert getattr(again, f"dump_{form}_str")() == file.read_text().rstrip("\n") + (
        "\n" if form == "yaml" else ""
    )


def test_tmux_lines_run_in_one_shell_after_the_preamble(tmp_path: Path) -> None:
    exp = TmuxCluster().new_experiment("hello", start_dir=str(tmp_path), preamble_cmds=["export A=1"])
    process = exp.new_process("server", cmds=["echo $A", "python server.py"], start_dir="~/code")
    process.set_envs({"B": 2})

    made = role(exp, "server")
    assert made.command[:2] == ["bash", "-c"]
    assert made.command[2].splitlines()[1:] == ["export A=1", "echo $A", "python server.py"]
    assert made.restart.policy == "Never"
    assert env(made)["B"] == "2"
    assert exp.to_callsheet().spec.spec.workdir.path == str(tmp_path)
    assert type(exp).load_json_str(exp.dump_json_str()).compile() == exp.compile()
    for kind in ("json", "yaml"):
        file = tmp_path / f"exp.{kind}"
        getattr(exp, f"dump_{kind}_file")(file)
        assert getattr(type(exp), f"load_{kind}_file")(file).compile() == exp.compile()


@pytest.mark.parametrize(("usual", "shown"), [("kubernetes", " --on local"), ("local", "")])
def test_a_launch_says_how_to_look_at_it_from_a_terminal_with_these_settings(
    usual: str,
    shown: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("CALLSHEET_ON", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "callsheet").mkdir()
    (tmp_path / "callsheet" / "config.toml").write_text(f'on = "{usual}"')
    run = FakeRun(Status(experiment="earlier", run="r1", phase="Running"))
    cluster = TmuxCluster()
    monkeypatch.setattr(cluster, "_backend", lambda: FakeBackend(run))
    exp = cluster.new_experiment("hello")
    exp.new_process("server", cmds="true")
    cluster.launch(exp)
    assert f"  callsheet status{shown} r1\n" in capsys.readouterr().out


def test_a_subprocess_line_is_split_as_a_shell_splits_it() -> None:
    exp = SubprocCluster().new_experiment("hello")
    exp.new_process("a", "python a.py --name 'two words'")

    assert role(exp, "a").command == ["python", "a.py", "--name", "two words"]
    assert type(exp).load_yaml_str(exp.dump_yaml_str()).compile() == exp.compile()


def test_a_docker_process_needs_the_program_that_its_image_would_start() -> None:
    exp = Cluster.new("docker").new_experiment("hello")
    process = exp.new_process("server", container_image="server:1")

    with pytest.raises(UserError, match="has only an image, 'server:1'"):
        exp.compile()
    process.words = ["python", "server.py"]
    assert role(exp, "server").image == "server:1"
    assert type(exp).load_yaml_str(exp.dump_yaml_str()).compile() == exp.compile()


def no_counterpart_calls() -> dict[str, Any]:
    docker = Cluster.new("docker").new_experiment("d").new_process("p")
    kube = KubeProcessSpec("p")
    return {
        "secrets": lambda: KubeExperimentSpec("x", secrets=["~/.ssh/id"]),
        "git": lambda: kube.mount_git_repo("https://example.com/x.git", "main", "/x"),
        "dispatcher": lambda: GKEDispatcher("cluster.tf.json"),
        "hostname": lambda: docker.set_hostname("h"),
        "ports": lambda: docker.set_ports([80]),
        "tmux server": lambda: TmuxCluster("other"),
        "log_dir": lambda: SubprocCluster(log_dir="logs"),
        "two streams": lambda: SubprocCluster(stdout_mode="print", stderr_mode="none"),
        "query": lambda: KubeCluster().query_resources("pod", "json"),
        "jsonpath": lambda: KubeCluster().query_jsonpath("pod", "{.x}"),
        "config": lambda: KubeCluster().config_view(),
        "context": lambda: KubeCluster().current_context(),
        "current": lambda: KubeCluster().current_experiment(),
        "switch": lambda: KubeCluster().set_experiment("x"),
    }


@pytest.mark.parametrize("call", list(no_counterpart_calls()))
def test_what_has_no_counterpart_says_so_and_what_to_do(call: str) -> None:
    with pytest.raises(UserError, match="has no counterpart in Callsheet") as raised:
        no_counterpart_calls()[call]()
    assert raised.value.fix


def test_braces_in_a_script_are_text() -> None:
    exp = KubeExperimentSpec("braces")
    process = exp.new_process("a", command=["echo"], args=["{index} {{role}} {web.addr} {x: {index}}"])
    process.set_env("TEMPLATE", "{index}")
    process.binds("web")

    plan = exp.to_callsheet().plan(on="local")
    replica = plan.roles[0].replicas[0]
    assert replica.containers[0].command == ("echo", "{index} {{role}} {web.addr} {x: {index}}")
    assert plan.environment(plan.roles[0], replica, 0)["TEMPLATE"] == "{index}"


PIECES = ["{", "}", "$", "index", "web", ".", "addr", "indx", " ", "files", "x", "{index}", "{web.addr}"]


@settings(max_examples=500)
@given(st.lists(st.sampled_from(PIECES)).map("".join))
def test_an_escaped_text_yields_itself(text: str) -> None:
    assert fill(parse(escape(text, ["web"]), ["web"]), lambda placeholder: f"<{placeholder}>") == text
