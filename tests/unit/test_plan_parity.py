"""The plan and what backends make of it: a pod's environment is the plan's, and a cluster's plan is a laptop's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from strategies import experiments

from callsheet import contract
from callsheet.backends.kubernetes.render.addressing import KubernetesAddressing
from callsheet.backends.kubernetes.render.objects import render
from callsheet.backends.local.addressing import LocalAddressing
from callsheet.backends.local.loopback import blocks_needed
from callsheet.backends.local.supervisor.files import Layout
from callsheet.plan.check import check_experiment
from callsheet.plan.load import load
from callsheet.plan.model import Plan
from callsheet.plan.resolve import resolve
from callsheet.spec.experiment import Experiment
from callsheet.spec.kubernetes import EnvVar

ROOT = Path(__file__).parents[2]
FILES = [*ROOT.glob("examples/*/experiment.yaml"), ROOT / "tests/golden/kubernetes/everything.yaml"]
LOOKED_UP = "(looked up in the cluster)"


def read(path: Path) -> Experiment:
    (loaded,) = load([str(path)], sets=["image=rl:1"])
    return loaded.experiment


def on_kubernetes(experiment: Experiment) -> Plan:
    return resolve(experiment, KubernetesAddressing(experiment, "r1"), "r1")


def on_a_laptop(experiment: Experiment) -> Plan:
    blocks = [f"127.9.{n}" for n in range(blocks_needed(experiment))]
    layout = Layout(Path("/runs/exp/r1"))
    return resolve(
        experiment, LocalAddressing(experiment, layout, "/code", "file:///r", blocks, frozenset()), "r1"
    )


class Kubelet:
    """Starts the pods of rendered objects, as far as their variables and commands go."""

    def __init__(self, objects: list[dict[str, Any]]) -> None:
        self.data = objects[0]["data"]
        self.name = objects[0]["metadata"]["name"]
        self.pods = {
            made["metadata"]["labels"]["callsheet.dev/role"]: made["spec"]["template"]["spec"]
            for made in objects
            if made["kind"] in ("Job", "StatefulSet")
        }

    def start(self, role: str, index: int, container: str) -> tuple[dict[str, str], tuple[str, ...]]:
        """The environment and the command of one container."""
        pod = self.pods[role]
        made = next(c for c in (*pod["containers"], *pod.get("initContainers", [])) if c["name"] == container)
        env: dict[str, str] = {}
        for variable in made["env"]:
            env[variable["name"]] = self._value(variable, index, env)
        words = (*made.get("command", ()), *made.get("args", ()))
        return env, tuple(expanded(word, env) for word in words)

    def _value(self, variable: dict[str, Any], index: int, env: dict[str, str]) -> str:
        if "value" in variable:
            return expanded(variable["value"], env)
        ((kind, ref),) = variable["valueFrom"].items()
        if kind == "fieldRef":
            path = ref["fieldPath"]
            return str(index) if "index']" in path else "0" if "failure-count" in path else f"<{path}>"
        ours = kind == "configMapKeyRef" and ref["name"] == self.name
        return str(self.data[ref["key"]]) if ours else LOOKED_UP


def expanded(text: str, env: dict[str, str]) -> str:
    """`$(NAME)` is the value of a variable above, and two dollars are one."""
    return re.sub(
        r"\$(\$|\((?P<name>[^)]*)\))",
        lambda m: "$" if m["name"] is None else env.get(m["name"], m[0]),
        text,
    )


def check_pods(experiment: Experiment) -> None:
    plan, kubelet = on_kubernetes(experiment), Kubelet(render(experiment, "r1", {}))
    for role in plan.roles:
        for replica in role.replicas:
            for position, container in enumerate(role.containers):
                env, command = kubelet.start(role.name, replica.index, container.name)
                asked = {name for name, value in env.items() if value == LOOKED_UP}
                planned = plan.environment(role, replica, position)
                given = {name: value for name, value in env.items() if name not in asked}
                assert given.items() >= {n: v for n, v in planned.items() if n not in asked}.items()
                assert {n for n in given if n.startswith("CALLSHEET_")} <= planned.keys()
                assert asked >= {ref.variable for ref in container.env_refs if ref.key}
                assert command == replica.containers[position].command


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_a_pods_environment_and_command_are_those_of_the_plan(path: Path) -> None:
    check_pods(read(path))


@pytest.mark.long
@given(experiments())
def test_every_pods_environment_and_command_are_those_of_its_plan(experiment: Experiment) -> None:
    assume(not check_experiment(experiment))
    words = EnvVar(name="WORDS", value=" ".join(f"{{{word}}}" for word in contract.WORDS))
    spec = experiment.spec.model_copy(update={"image": "rl:1", "env": [*experiment.spec.env, words]})
    check_pods(experiment.model_copy(update={"spec": spec}))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_a_cluster_plans_what_a_laptop_plans_except_what_is_marked(path: Path) -> None:
    experiment = read(path)
    here, there = on_a_laptop(experiment), on_kubernetes(experiment)
    hosts = {
        replica.host: other.host
        for role, twin in zip(here.roles, there.roles, strict=True)
        for replica, other in zip(role.replicas, twin.replicas, strict=True)
    }
    for role, twin in zip(here.roles, there.roles, strict=True):
        for replica, other in zip(role.replicas, twin.replicas, strict=True):
            for position, container in enumerate(twin.containers):
                laptop = here.environment(role, replica, position)
                cluster = there.environment(twin, other, position)
                for name in sorted(cluster.keys() | laptop.keys()):
                    if not name.startswith("CALLSHEET_") or name in (
                        contract.ADDRESSES,
                        contract.KEYS,
                        contract.STORAGE,
                    ):
                        continue  # where files lie is each backend's own
                    value = ",".join(
                        ":".join([hosts.get(host, host), *port])
                        for host, *port in (address.split(":") for address in laptop[name].split(","))
                    )
                    if name.endswith("_BIND"):
                        value = f"0.0.0.0:{value.rpartition(':')[2]}"
                    marked = [contract.endpoint_variable(e, "") for e in container.balanced]
                    if not any(name in (f"{m}ADDR", f"{m}HOST") for m in marked):
                        assert cluster[name] == value, name


def test_what_a_template_cannot_say_is_marked_and_goes_through_the_service() -> None:
    roles = [
        {"name": "server", "replicas": 3, "command": ["s"], "binds": [{"name": "echo", "port": 9000}]},
        {"name": "many", "replicas": 4, "command": ["m", "{echo.addr}"], "connects": ["echo"]},
        {"name": "few", "replicas": 3, "command": ["f", "{echo.addr}"], "connects": ["echo"]},
    ]
    experiment = Experiment.model_validate(
        {"metadata": {"name": "exp"}, "spec": {"image": "rl:1", "roles": roles}}
    )
    plan = on_kubernetes(experiment)
    assert [role.containers[0].balanced for role in plan.roles] == [(), ("echo",), ()]
    assert {r.containers[0].command[1] for r in plan.role("many").replicas} == {"exp-echo:9000"}
    assert [r.containers[0].command[1] for r in plan.role("few").replicas] == [
        f"exp-server-{index}.exp:9000" for index in range(3)
    ]
    assert not any(c.balanced for role in on_a_laptop(experiment).roles for c in role.containers)
    check_pods(experiment)
