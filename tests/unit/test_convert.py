"""A DIJob becomes an experiment: nothing is lost in silence, and DI's programs find what they know."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from callsheet.cli.main import call
from callsheet.compat.dijob import Converted, convert
from callsheet.compat.dijob.environment import translate
from callsheet.errors import InvalidExperiment
from callsheet.spec.dump import to_data

EXAMPLE = Path(__file__).parents[2] / "examples" / "dijob" / "job.yaml"
V1 = "diengine.opendilab.org/v1alpha1"
V2 = "diengine.opendilab.org/v2alpha1"


def container(**fields: Any) -> dict[str, Any]:
    return {"name": "di-container", "image": "ding:1", "command": ["ding"], **fields}


def pod(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": list(containers or [container()]), **spec}}


def task(kind: str = "learner", template: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "template": template or pod(), **fields}


def job(version: str = V2, **spec: Any) -> str:
    return yaml.safe_dump(
        {"apiVersion": version, "kind": "DIJob", "metadata": {"name": "qbert"}, "spec": spec}, sort_keys=False
    )


def converted(text: str, **options: Any) -> Converted:
    [made] = convert(text.encode(), "job.yaml", **options)
    return made


def roles(made: Converted) -> dict[str, Any]:
    return {role["name"]: role for role in to_data(made.experiment)["spec"]["roles"]}


def values(role: dict[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in role["env"] if "value" in entry}


def warned(made: Converted) -> dict[str, str]:
    return {warning.path: warning.message for warning in made.warnings}


def mistakes(text: str) -> list[str]:
    with pytest.raises(InvalidExperiment) as raised:
        convert(text.encode(), "job.yaml")
    return [str(problem) for problem in raised.value.problems]


def test_tasks_become_roles_with_their_names_replicas_and_restarts() -> None:
    made = converted(job(tasks=[task(), task("collector", replicas=4), task("none", name="board")]))
    found = roles(made)
    assert {name: role["replicas"] for name, role in found.items()} == {
        "learner": 1,
        "collector": 4,
        "board": 1,
    }
    assert found["board"]["restart"] == {"policy": "OnFailure", "limit": 3}
    assert to_data(made.experiment)["spec"]["lifecycle"] == {"maxRestarts": 3}
    assert found["learner"]["binds"] == [{"name": "learner", "port": 22270}]
    assert found["learner"]["connects"] == ["collector", "board"]


def test_backoff_limit_and_clean_pod_policy_are_kept() -> None:
    made = converted(job(backoffLimit=7, cleanPodPolicy="All", tasks=[task()]))
    assert to_data(made.experiment)["spec"]["lifecycle"] == {"maxRestarts": 7, "cleanPods": "All"}
    assert roles(made)["learner"]["restart"]["limit"] == 7


def test_single_replicas_know_their_rank_and_all_hosts_without_any_shell() -> None:
    found = roles(converted(job(tasks=[task(), task("evaluator")])))
    assert values(found["evaluator"]) == {
        "DI_JOB_ID": "default/{experiment}",
        "DI_RANK": "1",
        "DI_NODES": "{learner.host},{evaluator.host}",
        "DI_LEARNER_NODES": "{learner.host}",
        "DI_EVALUATOR_NODES": "{evaluator.host}",
    }
    assert found["evaluator"]["command"] == ["ding"]


def test_a_task_with_several_replicas_counts_its_rank_in_a_shell() -> None:
    found = roles(converted(job(tasks=[task(), task("collector", replicas=2)])))
    shell, flag, script, *rest = found["collector"]["command"]
    assert [shell, flag, *rest] == ["/bin/sh", "-c", "ding"]
    assert "export DI_RANK=$((1 + CALLSHEET_INDEX))" in script
    assert "DI_RANK" not in values(found["collector"])
    assert values(found["learner"])["DI_RANK"] == "0"


def test_the_first_task_needs_no_shell_for_its_rank() -> None:
    found = roles(converted(job(tasks=[task("collector", replicas=2)])))
    assert values(found["collector"])["DI_RANK"] == "{index}"


def test_without_a_command_a_rank_cannot_be_counted_and_that_is_said() -> None:
    silent = pod({"name": "di-container", "image": "ding:1"})
    made = converted(job(tasks=[task(), task("collector", silent, replicas=2)]))
    path = "spec.tasks[1].template.spec.containers[di-container]"
    assert "DI_RANK" in warned(made)[path]


def test_the_first_version_has_a_coordinator_that_decides_the_end() -> None:
    parts = {name: {"template": pod()} for name in ("coordinator", "collector", "learner")}
    made = converted(job(V1, priorityClassName="high", **parts))
    found = roles(made)
    assert to_data(made.experiment)["spec"]["lifecycle"]["success"] == ["coordinator"]
    assert [found[name]["binds"][0]["port"] for name in parts] == [22273, 22270, 22271]
    assert {role["priorityClassName"] for role in found.values()} == {"high"}
    assert found["coordinator"]["restart"]["policy"] == "Never"
    assert found["collector"]["scale"] == {"min": 0, "max": 64}
    assert values(found["collector"]) == {
        "KUBERNETES_POD_NAME": "{experiment}-{role}-{index}",
        "KUBERNETES_COORDINATOR_URL": "{coordinator.addr}",
        "COLLECTOR_PORT": "{collector.port}",
    }
    assert found["collector"]["env"][0]["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.namespace"}}
    assert "DI's server" in warned(made)["spec.collector"]


def test_a_learner_with_several_gpus_is_warned_that_there_is_no_aggregator() -> None:
    two = pod(container(resources={"limits": {"nvidia.com/gpu": 2}}))
    made = converted(job(V1, coordinator={"template": pod()}, learner={"template": two}))
    assert any("aggregator" in warning.message for warning in made.warnings)


def test_release_1_0_had_one_template_for_all() -> None:
    made = converted(job(minReplicas=2, maxReplicas=5, engineFields={"topology": "star"}, template=pod()))
    worker = roles(made)["worker"]
    assert (worker["replicas"], worker["scale"]) == (2, {"min": 2, "max": 5})
    assert values(worker)["DI_RANK"] == "{index}"
    assert "spec.engineFields" in warned(made)


def test_what_has_no_counterpart_is_told_by_its_path() -> None:
    template = pod(
        container(
            workingDir="/ding", ports=[{"containerPort": 9, "protocol": "UDP"}], env=[{"name": "DI_RANK"}]
        ),
        hostname="me",
        restartPolicy="Always",
        initContainers=[{"name": "fetch", "image": "x"}],
    )
    made = converted(job(priority="high", preemptible=True, tasks=[task(template=template)]))
    inside = "spec.tasks[0].template.spec"
    assert warned(made).keys() == {
        "spec",
        "spec.priority",
        "spec.preemptible",
        f"{inside}.hostname",
        f"{inside}.restartPolicy",
        f"{inside}.initContainers",
        f"{inside}.containers[di-container].workingDir",
        f"{inside}.containers[di-container].ports[0].protocol",
        f"{inside}.containers[di-container].env[DI_RANK].name",
    }
    assert all(warning.line for warning in made.warnings)


def test_fields_of_the_pod_are_kept_and_unknown_kinds_go_to_the_patches() -> None:
    template = pod(
        container(
            livenessProbe={"exec": {"command": ["true"]}},
            volumeMounts=[
                {"name": "work-dir", "mountPath": "/ding"},
                {"name": "ceph", "mountPath": "/ceph"},
                {"name": "work-dir", "mountPath": "/deep", "mountPropagation": "None"},
            ],
        ),
        nodeSelector={"pool": "gpu"},
        serviceAccount="ding",
        terminationGracePeriodSeconds=5,
        schedulerName="volcano",
        volumes=[{"name": "ceph", "cephfs": {"monitors": ["a"]}}],
        securityContext={"fsGroup": 7},
    )
    template["metadata"] = {"labels": {"team": "rl"}}
    made = converted(
        job(volumes=[{"name": "work-dir", "hostPath": {"path": "/d"}}], tasks=[task(template=template)])
    )
    role = roles(made)["learner"]
    assert role["nodeSelector"] == {"pool": "gpu"}
    assert role["labels"] == {"team": "rl"}
    assert role["serviceAccountName"] == "ding"
    assert role["terminationGracePeriod"] == "5s"
    assert role["volumeMounts"] == [{"name": "work-dir", "mountPath": "/ding"}]
    assert [mount["mountPath"] for mount in role["containerPatch"]["volumeMounts"]] == ["/ceph", "/deep"]
    assert [volume["name"] for volume in role["podPatch"]["volumes"]] == ["ceph", "work-dir"]
    assert role["podPatch"]["schedulerName"] == "volcano"
    assert role["podPatch"]["securityContext"]["fsGroup"] == 7
    assert role["containerPatch"]["livenessProbe"] == {"exec": {"command": ["true"]}}


def test_volumes_of_pods_that_share_a_name_and_differ_are_renamed() -> None:
    def mounting(path: str) -> dict[str, Any]:
        mount = {"name": "data", "mountPath": "/data"}
        return pod(container(volumeMounts=[mount]), volumes=[{"name": "data", "hostPath": {"path": path}}])

    found = converted(job(tasks=[task(template=mounting("/a")), task("evaluator", mounting("/b"))]))
    names = [volume["name"] for volume in to_data(found.experiment)["spec"]["volumes"]]
    assert names == ["data", "evaluator-data"]
    assert roles(found)["evaluator"]["volumeMounts"][0]["name"] == "evaluator-data"


def test_di_container_is_the_main_one_of_several() -> None:
    template = pod({"name": "log", "image": "x", "command": ["tail"]}, container())
    made = converted(job(tasks=[task(template=template)]))
    group = roles(made)["learner"]["containers"]
    assert [c["name"] for c in group] == ["di-container", "log"]
    assert group[0]["binds"] == [{"name": "learner", "port": 22270}]
    assert group[1]["connects"] == ["learner"]
    assert values(group[1])["DI_RANK"] == "0"
    assert "stops the other containers" in warned(made)["spec.tasks[0].template.spec.containers"]


def test_images_write_to_their_own_folder_as_their_own_user() -> None:
    role = roles(converted(job(tasks=[task()])))["learner"]
    assert role["securityContext"] == {"readOnlyRootFilesystem": False}
    assert role["containerPatch"] == {"workingDir": ""}
    assert role["podPatch"]["securityContext"]["$patch"] == "replace"
    carried = converted(job(tasks=[task()]), workdir="code")
    assert "containerPatch" not in roles(carried)["learner"]
    assert carried.experiment.spec.workdir.path == "code"


def test_a_port_that_nobody_promised_does_not_decide_readiness() -> None:
    ports = [{"name": "di-port", "containerPort": 5000}, {"name": "web", "containerPort": 80}]
    found = roles(converted(job(tasks=[task(), task("evaluator", pod(container(ports=ports)))])))
    assert found["learner"]["readinessProbe"] == {"exec": {"command": ["true"]}}
    assert "readinessProbe" not in found["evaluator"]
    assert found["evaluator"]["binds"] == [
        {"name": "evaluator", "port": 5000},
        {"name": "evaluator-web", "port": 80},
    ]


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("echo {index} {json: 1}", "echo {{index}} {json: 1}"),
        ("$(HERE)/x", "{mounts.x}/x"),
        ("$(date) $(HERE", "$(date) $(HERE"),
        ("$$(HERE) costs 5$$", "$(HERE) costs 5$"),
        ("{learner.addr}", "{{learner.addr}}"),
    ],
)
def test_text_arrives_as_kubernetes_would_have_made_it(text: str, becomes: str) -> None:
    assert translate(text, ["learner"], {"HERE": "{mounts.x}"}) == (becomes, [])


def test_a_reference_to_a_secret_cannot_be_filled_in() -> None:
    secret = {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    template = pod(container(env=[secret], args=["--key=$(KEY)"]))
    made = converted(job(tasks=[task(template=template)]))
    path = "spec.tasks[0].template.spec.containers[di-container].args[0]"
    assert warned(made)[path].startswith("$(KEY) is not replaced")
    assert roles(made)["learner"]["args"] == ["--key=$(KEY)"]


def test_a_script_with_a_config_inside_arrives_line_by_line() -> None:
    script = (
        "cat <<EOF > config.py\nconfig = dict(env={'id': 'Qbert'}, index={index})\nEOF\nding -c config.py\n"
    )
    made = converted(job(tasks=[task(template=pod(container(command=["bash", "-c"], args=[script])))]))
    assert roles(made)["learner"]["args"] == [script.replace("{index}", "{{index}}")]


def test_every_mistake_is_told_at_once_with_its_place_in_the_job() -> None:
    text = textwrap.dedent("""\
        apiVersion: diengine.opendilab.org/v2alpha1
        kind: DIJob
        metadata: {name: Qbert}
        spec:
          cleanPodPolicy: Runing
          tasks:
          - type: learner
            replicas: 0
            template:
              spec:
                containers:
                - {name: a, comand: [x], resources: {limits: {cpu: lots}}}
          - type: none
            template: {spec: {containers: []}}
          - {type: colector, name: c}
        """)
    assert mistakes(text) == [
        "job.yaml:3:18: metadata.name: 'Qbert' is not a DNS label (lowercase letters, digits and hyphens, starting with "
        "a letter and not ending with a hyphen)\n    fix: write qbert",
        "job.yaml:5:19: spec.cleanPodPolicy: 'Runing' is not one of Running, All, None\n    fix: did you mean Running?",
        "job.yaml:8:15: spec.tasks[0].replicas: '0' is not a whole number of at least 1\n    fix: write 1",
        "job.yaml:12:21: spec.tasks[0].template.spec.containers[a].comand: unknown key 'comand'"
        "\n    fix: did you mean command?",
        "job.yaml:12:60: spec.tasks[0].template.spec.containers[a].resources.limits.cpu: 'lots' is not a Kubernetes quantity"
        '\n    fix: write a number with an optional suffix: 4, "1.5", 500m, 10Gi',
        "job.yaml:13:5: spec.tasks[1]: a task of type none needs a name\n    fix: add name:",
        "job.yaml:14:22: spec.tasks[1].template.spec: there is no container\n    fix: add containers: with one item",
        "job.yaml:15:5: spec.tasks[c]: the task has no template\n    fix: add template: {spec: {containers: [...]}}",
        "job.yaml:15:12: spec.tasks[c].type: 'colector' is not one of learner, collector, evaluator, none"
        "\n    fix: did you mean collector?",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "job.yaml is empty"),
        ("kind: Pod", "it is not a DIJob"),
        ("[1]", "a document with no kind is ignored"),
        ("kind: DIJob", "apiVersion is missing"),
        ("kind: DIJob\napiVersion: diengine.opendilab.org/v9", "apiVersion is 'diengine.opendilab.org/v9'"),
        (f"kind: DIJob\napiVersion: {V2}", "the job has no spec"),
        (f"kind: DIJob\napiVersion: {V2}\nmetadata: {{name: a}}\nspec: {{tasks: []}}", "the job has no task"),
        (
            f"kind: DIJob\napiVersion: {V1}\nmetadata: {{name: a}}\nspec: {{group: a}}",
            "there is no coordinator",
        ),
        ("kind: DIJob\nkind: DIJob", "first used in line 1"),
        ("kind: 'DIJob", "job.yaml:1:"),
        (f"kind: DIJob\napiVersion: {V2}\nspec: {{tasks: {{}}}}", "this must be a list"),
        (f"kind: DIJob\napiVersion: {V2}\nspec: [1]", "this must be a mapping"),
    ],
)
def test_what_is_no_job_is_refused_with_a_sentence(text: str, said: str) -> None:
    assert any(said in mistake for mistake in mistakes(text))


def test_tasks_of_one_type_exclude_each_other() -> None:
    text = job(tasks=[task(), task(name="second")])
    assert any("there is already a task of type learner" in mistake for mistake in mistakes(text))


def test_several_jobs_in_one_file_become_several_experiments() -> None:
    config = "apiVersion: diengine.opendilab.org/v1alpha1\nkind: AggregatorConfig\n"
    one, two = convert(
        "---\n".join([job(tasks=[task()]), job(tasks=[task("evaluator")]), config]).encode(), "f"
    )
    assert [list(roles(one)), list(roles(two))] == [["learner"], ["evaluator"]]
    assert any("AggregatorConfig" in warning.message for warning in one.warnings)


def test_the_verb_prints_the_experiment_on_stdout_and_warnings_on_stderr(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert call(["convert", str(EXAMPLE)]) == 0
    shown = capsys.readouterr()
    made = tmp_path / "experiment.yaml"
    made.write_text(shown.out)
    assert f"warning: {EXAMPLE}:7:3: spec.priority: is ignored" in shown.err
    assert call(["validate", "-f", str(made)]) == 0
    assert "3 roles, 4 replicas" in capsys.readouterr().out


def test_the_verb_refuses_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["convert", "nowhere.yaml"]) == 2
    assert "cannot read nowhere.yaml" in capsys.readouterr().err
