"""`callsheet render --on kubernetes | kubectl apply -f -`: the same file that runs on a laptop, on real nodes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubectl import Kube, eventually

from callsheet.backends.base import backend
from callsheet.backends.kubernetes.render.objects import manifests, to_text
from callsheet.plan.check import check_experiment
from callsheet.plan.load import load
from callsheet.spec.experiment import Experiment
from tools.cluster import faults

EXAMPLES = Path(__file__).parents[2] / "examples"

# Tells everything that a process is given, as one line of JSON, and then waits for its end.
DUMP = """
import json, os, pathlib, sys, time
paths = sys.argv[1:]
env = {k: v for k, v in os.environ.items() if k.startswith('CALLSHEET_') or k in ('GREETING', 'WHO')}
book = json.loads(pathlib.Path(os.environ['CALLSHEET_ADDRESSES']).read_text())
files = {str(number): pathlib.Path(path).read_text() for number, path in enumerate(paths)}
code = pathlib.Path('code.py').read_text()
runs = os.access('run.sh', os.X_OK)
print(json.dumps({'env': env, 'book': book, 'files': files, 'code': code, 'runs': runs}), flush=True)
"""


def experiment(image: str, *roles: dict[str, Any], **spec: Any) -> Experiment:
    data = {"metadata": {"name": "exp"}, "spec": {"image": image, "roles": list(roles), **spec}}
    made = Experiment.model_validate(data)
    assert not check_experiment(made)
    return made


def logs(kube: Kube, selector: str, container: str) -> dict[int, str]:
    """The output of each replica of a role, by index."""
    found = {}
    for pod in kube.get("pods", "-l", selector)["items"]:
        where = pod["metadata"]
        index = (
            where.get("annotations", {}).get("batch.kubernetes.io/job-completion-index")
            or where["labels"]["apps.kubernetes.io/pod-index"]
        )
        found[int(index)] = kube("logs", where["name"], "-c", container)
    return found


def job_done(kube: Kube, name: str) -> bool:
    conditions = kube.get("job", name)["status"].get("conditions", [])
    assert not any(c["type"] == "Failed" and c["status"] == "True" for c in conditions), conditions
    return any(c["type"] == "Complete" and c["status"] == "True" for c in conditions)


@pytest.fixture
def restricted(namespace: Kube) -> Kube:
    """A namespace that accepts only what the strictest Pod Security Standard accepts."""
    namespace("label", "namespace", namespace.namespace, "pod-security.kubernetes.io/enforce=restricted")
    return namespace


def test_the_tzmq_example_runs_to_its_end_in_a_restricted_namespace(restricted: Kube, image: str) -> None:
    (loaded,) = load([str(EXAMPLES / "tzmq" / "experiment.yaml")], sets=[f"image={image}"])
    text = to_text(manifests(loaded.experiment, loaded.base))
    restricted("apply", "-f", "-", stdin=text)
    eventually(lambda: job_done(restricted, "tzmq-learner"), 240)
    learner = logs(restricted, "callsheet.dev/role=learner", "learner")[0]
    assert "collected 10000/10000 trajectories from 3 actors" in learner
    assert len(set(restricted.nodes_of("callsheet.dev/experiment=tzmq").values())) == 2, (
        "spread over both nodes"
    )
    assert "unchanged" in restricted("apply", "-f", "-", stdin=text), "the same file gives the same objects"
    restricted("delete", "-f", "-", "--wait=false", stdin=text)
    eventually(lambda: not restricted.get("pods", "-l", "callsheet.dev/experiment=tzmq")["items"])


def test_groups_find_their_own_simulator_and_one_service_stands_for_all(restricted: Kube, image: str) -> None:
    (loaded,) = load([str(EXAMPLES / "simulation" / "experiment.yaml")], sets=[f"image={image}"])
    restricted("apply", "-f", "-", stdin=to_text(manifests(loaded.experiment, loaded.base)))
    restricted.ready("statefulset", "simulation-simulation", 120)
    restricted.ready("statefulset", "simulation-trainer", 120)
    ask = "import sys,urllib.request; print(urllib.request.urlopen(sys.argv[1]).read().decode())"

    def curl(address: str) -> str:
        """The answer; empty while a name is not known yet or a simulator does not answer its policy yet."""
        return restricted.said("exec", "simulation-trainer-0", "--", "python", "-c", ask, f"http://{address}")

    for index in range(3):
        host = f"simulation-simulation-{index}.simulation:9991"
        eventually(lambda host=host, index=index: f"index={index}" in curl(host))
    seen = set()
    eventually(
        lambda: (
            seen.update(re.findall(r"role=simulation index=(\d)", curl("simulation-policy:9991")))
            or len(seen) == 3
        )
    )
    assert seen == {"0", "1", "2"}, "the Service balances over all replicas"


def test_a_job_with_a_simulator_beside_its_worker_completes(restricted: Kube, image: str) -> None:
    group = [
        {"name": "worker", "command": ["python", "-c", "print('done')"]},
        {"name": "sim", "command": ["python", "-c", "import time; time.sleep(3600)"]},
    ]
    exp = experiment(
        image, {"name": "pair", "replicas": 2, "containers": group, "terminationGracePeriod": "1s"}
    )
    restricted("apply", "-f", "-", stdin=to_text(manifests(exp, Path(__file__).parent.parent / "programs")))
    eventually(lambda: job_done(restricted, "exp-pair"))


def test_a_replica_that_fails_is_replaced_and_told_its_attempt(restricted: Kube, image: str) -> None:
    code = "import os,sys; print(os.environ['CALLSHEET_ATTEMPT']); sys.exit(os.environ['CALLSHEET_ATTEMPT'] == '0')"
    exp = experiment(image, {"name": "actor", "replicas": 2, "command": ["python", "-c", code]})
    restricted("apply", "-f", "-", stdin=to_text(manifests(exp, Path(__file__).parent.parent / "programs")))
    eventually(lambda: job_done(restricted, "exp-actor"), 240)


# What may differ between a laptop and a cluster: how a host is written, and where paths lead.
HOSTS = re.compile(r"127\.\d+\.\d+\.\d+|0\.0\.0\.0|exp-[a-z]+-\d+\.exp")
PATHS = ("CALLSHEET_ADDRESSES", "CALLSHEET_KEYS")


def _comparable(told: dict[str, Any], hosts: dict[str, str]) -> dict[str, Any]:
    """What a process told, with every host replaced by the replica it means."""
    text = HOSTS.sub(lambda match: hosts.get(match[0], match[0]), json.dumps(told))
    same = json.loads(text)
    for name in PATHS:
        assert same["env"].pop(name).startswith("/")
    for name in [name for name in same["env"] if name.endswith("_BIND")]:
        same["env"][name] = same["env"][name].rpartition(":")[
            2
        ]  # a laptop: its own address; a pod: all of them
    same["book"].pop("generation", None)  # counts changes of scale where a supervisor counts them
    return same


def test_a_process_is_told_the_same_on_a_laptop_and_on_kubernetes(
    restricted: Kube, image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    code = tmp_path / "code"
    code.mkdir()
    (code / "code.py").write_text("the user's own")
    (code / "run.sh").write_text("#!/bin/sh\n")
    (code / "run.sh").chmod(0o755)
    dump = ["python", "-c", DUMP, "{files.config.py}"]
    exp = experiment(
        image,
        {"name": "learner", "command": dump, "binds": [{"name": "data", "port": 9999}, {"name": "params"}]},
        {
            "name": "actor",
            "replicas": 2,
            "command": dump,
            "connects": ["data", "sim"],
            "env": [{"name": "WHO", "value": "{role}-{index}/{replicas} {data.port} $(x) {{index}}"}],
        },
        {
            "name": "pair",
            "replicas": 2,
            "containers": [
                {"name": "worker", "command": dump, "connects": ["sim"]},
                {
                    "name": "sim",
                    "command": ["python", "-c", "import time; time.sleep(3600)"],
                    "binds": [{"name": "sim"}],
                },
            ],
            "terminationGracePeriod": "1s",
        },
        env=[{"name": "GREETING", "value": "hello {experiment}"}],
        files={"config.py": "lr = 1\n"},
        storage=f"file://{code.parent}/results",
    )
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    run = backend("local").start(exp, base=code, detach=True)
    status = run.wait(180)
    assert status.phase == "Succeeded", status
    here = {replica.host: replica.name for replica in status.replicas}
    objects = manifests(exp, code, run.id)
    restricted("apply", "-f", "-", stdin=to_text(objects))
    for role in ("learner", "actor", "pair"):
        eventually(lambda role=role: job_done(restricted, f"exp-{role}"), 240)
    there = {f"exp-{name.replace('/', '-')}.exp": name for name in here.values()}
    for replica in status.replicas:
        container = replica.containers[0].name
        log = Path(status.folder) / "logs" / replica.role / str(replica.index) / f"{container}.log"
        local = json.loads(log.read_text())
        pods = logs(restricted, f"callsheet.dev/role={replica.role}", container)
        assert _comparable(json.loads(pods[replica.index]), there) == _comparable(local, here), replica.name


def _claim_on_this_machine(kube: Kube, folder: Path) -> None:
    """A PersistentVolume that is a folder of the machine, for the claim of the racing example."""
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)  # a folder of the machine is not handed over to the pod's group
    name = f"racing-{kube.namespace}"
    kube.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "hostPath": {"path": str(folder)},
                "claimRef": {"namespace": kube.namespace, "name": "racing-results"},
                "persistentVolumeReclaimPolicy": "Retain",
            },
        }
    )
    claim = yaml.safe_load((EXAMPLES / "learn-to-race" / "claim.yaml").read_text())
    claim["spec"]["storageClassName"] = ""
    kube.apply(claim)


@pytest.fixture
def gpus(namespace: Kube) -> Iterator[Callable[[str, int], None]]:
    """Gives GPUs to nodes, and takes them away when the test has ended: the cluster is shared."""
    own = namespace.own
    if own is None:
        pytest.skip("needs a cluster whose nodes share this machine's folders")
    given: list[str] = []

    def give(node: str, count: int) -> None:
        given.append(node)
        faults.set_gpus(own, node, count)

    yield give
    for node in given:
        faults.set_gpus(own, node, 0)


def test_racing_uses_a_gpu_node_secrets_and_a_claim(
    namespace: Kube, image: str, gpus: Callable[[str, int], None]
) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as shared:
        os.chmod(shared, 0o755)
        _claim_on_this_machine(namespace, Path(shared) / "results")
        node = sorted(n["metadata"]["name"] for n in namespace.get("nodes", "-l", "type!=kwok")["items"])[1]
        gpus(node, 1)
        for name in ("aws-key", "aws-secret-key"):
            namespace("create", "secret", "generic", name, f"--from-literal=access-key={name}-value")
        (loaded,) = load([str(EXAMPLES / "learn-to-race" / "experiment.yaml")], sets=[f"image={image}"])
        namespace("apply", "-f", "-", stdin=to_text(manifests(loaded.experiment, loaded.base)))
        eventually(lambda: job_done(namespace, "racing-learner"), 240)
        assert set(namespace.nodes_of("callsheet.dev/role=learner").values()) == {node}
        learner = logs(namespace, "callsheet.dev/role=learner", "learner")[0]
        assert "AWS_ACCESS_KEY_ID is set" in learner
        assert "learned from 60 episodes" in learner
        results = list(Path(shared).rglob("policy-000060.json"))
        assert len(results) == 1, "checkpoints are on the claim"
        assert "racing" in results[0].parts


def test_a_symphony_script_launches_on_the_cluster(namespace: Kube, image: str, tmp_path: Path) -> None:
    code = tmp_path / "symphony"
    shutil.copytree(EXAMPLES / "symphony", code)
    script = code / "experiment.py"
    script.write_text(script.read_text().replace("python:3.12", image))
    kubeconfig = tmp_path / "kubeconfig"
    shutil.copy(namespace.kubeconfig, kubeconfig)
    words = [str(namespace.kubectl), "--kubeconfig", str(kubeconfig), "config", "set-context", "--current"]
    subprocess.run([*words, "--namespace", namespace.namespace], check=True, capture_output=True)
    env = os.environ | {"KUBECONFIG": str(kubeconfig), "XDG_STATE_HOME": str(tmp_path)}
    env.pop("CALLSHEET_ON", None)
    launched = subprocess.run(
        [sys.executable, str(script)], cwd=code, env=env, capture_output=True, text=True
    )
    assert launched.returncode == 0, launched.stderr
    eventually(lambda: job_done(namespace, "rl-learner"), 240)
    assert "learned: return" in logs(namespace, "callsheet.dev/role=learner", "learner")[0]
    assert namespace.get("service", "rl-replay-server")["spec"]["ports"][0]["name"] == "replay-server"
