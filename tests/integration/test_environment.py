"""What a process is given: arguments byte for byte, files, volumes, secrets, keys, GPUs, and the contract's variables."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from local_runs import (
    PYTHON,
    backend,
    eventually,
    experiment,
    lines,
    program,
    python,
    running,
    until_all_spoke,
    until_running,
)

from callsheet.errors import InvalidExperiment, UserError

DUMP = "import sys,json,os; print(json.dumps([sys.argv[1:], dict(os.environ)]))"


def _dump(folder: Path, role: dict[str, Any], **spec: Any) -> tuple[list[str], dict[str, str]]:
    """Arguments and environment as the process of a one-role experiment sees them."""
    with running(experiment({"name": "actor", **role}, **spec), folder) as run:
        assert run.wait(20).phase == "Succeeded", lines(run, "actor")
        arguments, env = json.loads(lines(run, "actor/0")[-1])
    return arguments, env


def test_json_shell_and_dollars_arrive_byte_for_byte(folder: Path) -> None:
    tricky = [
        '{"lr": 1e-3, "nested": {"a": [1, {"b": null}]}}',
        "$(rm -rf /) `date` ${HOME} $HOME $$ \\n %s %(x)s",
        "awk '{print $1}' {{ template }} {% if x %} {} { } {0} {a,b}",
        "tab\tnewline\nquote'\"unicode é 漢字 \U0001f600",
        "",
        " spaces at both ends ",
    ]
    arguments, env = _dump(
        folder, {"command": python(DUMP), "args": tricky, "env": [{"name": "TRICKY", "value": tricky[0]}]}
    )
    assert arguments == tricky
    assert env["TRICKY"] == tricky[0]


def test_braces_are_filled_in_and_doubled_braces_are_literal(folder: Path) -> None:
    arguments, _ = _dump(
        folder,
        {
            "command": python(DUMP),
            "args": ["{role}-{index}/{replicas}", "{{index}}", '{"i": {index}}', "${index}"],
        },
    )
    assert arguments == ["actor-0/1", "{index}", '{"i": 0}', "${index}"]


def test_the_contract_is_in_the_environment(folder: Path) -> None:
    role = {"command": python(DUMP), "exposes": [{"name": "tensorboard", "port": 6006}]}
    _, env = _dump(folder, role)
    ours = {name: value for name, value in env.items() if name.startswith("CALLSHEET_")}
    run = ours["CALLSHEET_RUN"]
    host = ours["CALLSHEET_TENSORBOARD_HOST"]
    private = f"{folder}/runs/exp/{run}/.callsheet"
    assert ours == {
        "CALLSHEET_EXPERIMENT": "exp",
        "CALLSHEET_RUN": run,
        "CALLSHEET_ROLE": "actor",
        "CALLSHEET_INDEX": "0",
        "CALLSHEET_CONTAINER": "actor",
        "CALLSHEET_REPLICAS": "1",
        "CALLSHEET_ATTEMPT": "0",
        "CALLSHEET_STORAGE": f"file://{folder}/runs/exp/{run}",
        "CALLSHEET_KEYS": f"{private}/keys",
        "CALLSHEET_ADDRESSES": f"{private}/addresses.json",
        "CALLSHEET_TENSORBOARD_PORT": "6006",
        "CALLSHEET_TENSORBOARD_BIND": f"{host}:6006",
        "CALLSHEET_TENSORBOARD_ADDR": f"{host}:6006",
        "CALLSHEET_TENSORBOARD_HOST": host,
        "CALLSHEET_TENSORBOARD_ALL": f"{host}:6006",
    }


def test_a_containers_own_variables_win_over_the_experiments(folder: Path) -> None:
    role = {"command": python(DUMP), "env": [{"name": "A", "value": "own"}]}
    _, env = _dump(
        folder, role, env=[{"name": "A", "value": "all"}, {"name": "B", "value": "of {experiment}"}]
    )
    assert (env["A"], env["B"]) == ("own", "of exp")


def test_variables_come_from_the_pods_fields_and_resources(folder: Path) -> None:
    def source(name: str, **value: Any) -> dict[str, Any]:
        return {"name": name, "valueFrom": value}

    role = {
        "command": python(DUMP),
        "labels": {"team": "rl"},
        "resources": {"limits": {"memory": "1.5Gi"}, "requests": {"cpu": "1500m"}},
        "env": [
            source("POD_NAME", fieldRef={"fieldPath": "metadata.name"}),
            source("TEAM", fieldRef={"fieldPath": "metadata.labels['team']"}),
            source("MEMORY_MIB", resourceFieldRef={"resource": "limits.memory", "divisor": "1Mi"}),
            source("CPUS", resourceFieldRef={"resource": "requests.cpu"}),
        ],
    }
    _, env = _dump(folder, role)
    assert (env["POD_NAME"], env["TEAM"], env["MEMORY_MIB"], env["CPUS"]) == (
        "exp-actor-0",
        "rl",
        "1536",
        "2",
    )


def test_injected_files_are_where_their_braces_say(folder: Path) -> None:
    cat = "import sys; print(open(sys.argv[1]).read())"
    role = {"name": "actor", "command": python(cat, "{files.config.py}")}
    with running(experiment(role, files={"config.py": "lr = {index}\n"}), folder) as run:
        assert run.wait(20).phase == "Succeeded"
        assert lines(run, "actor")[0] == "lr = {index}", "files are not filled in"


def _secret(folder: Path, name: str, **keys: str) -> None:
    place = folder / ".callsheet" / "secrets" / name
    place.mkdir(parents=True)
    for key, value in keys.items():
        (place / key).write_text(value + "\n")


def test_secrets_come_from_a_folder_and_are_written_nowhere(folder: Path) -> None:
    _secret(folder, "cloud", TOKEN="hunter2", REGION="eu")
    role = {
        "name": "actor",
        "command": python(
            "import os; assert os.environ['KEY'] == os.environ['X_TOKEN'] == 'hunter' + str(2); print('ok')"
        ),
        "env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "cloud", "key": "TOKEN"}}}],
        "envFrom": [{"prefix": "X_", "secretRef": {"name": "cloud"}}],
    }
    with running(experiment(role), folder) as run:
        assert run.wait(20).phase == "Succeeded", lines(run, "actor")
        for path in run.folder.rglob("*"):
            assert not path.is_file() or b"hunter2" not in path.read_bytes(), path


def test_a_missing_secret_is_said_before_the_start(folder: Path) -> None:
    source = {"secretKeyRef": {"name": "cloud", "key": "TOKEN"}}
    role = {"name": "actor", "command": python("pass"), "env": [{"name": "KEY", "valueFrom": source}]}
    with pytest.raises(
        InvalidExperiment, match=r"Secret 'cloud' is missing here[^$]*make .*secrets/cloud/TOKEN"
    ):
        backend("local").start(experiment(role), base=folder)


def test_a_missing_secret_that_is_mounted_is_said_before_the_start(folder: Path) -> None:
    role = {"name": "actor", "command": python("pass"), "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    exp = experiment(role, volumes=[{"name": "v", "secret": {"secretName": "cloud"}}])
    with pytest.raises(InvalidExperiment, match=r"spec.volumes\[v\]: Secret 'cloud' is missing here"):
        backend("local").start(exp, base=folder)


def test_volumes_have_a_meaning_on_a_laptop(folder: Path) -> None:
    _secret(folder, "cloud", TOKEN="hunter2")
    write = "import os,sys; [open(os.path.join(p, 'mark'), 'a').write('x') for p in sys.argv[1:4]]; print(os.listdir(sys.argv[4]))"
    mounts = ["scratch", "data", "host", "cloud"]
    role = {
        "name": "actor",
        "replicas": 2,
        "command": python(write, *(f"{{mounts.{name}}}" for name in mounts)),
        "volumeMounts": [{"name": name, "mountPath": f"/{name}"} for name in mounts],
    }
    (folder / "host").mkdir()
    volumes = [
        {"name": "scratch", "emptyDir": {}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "big"}},
        {"name": "host", "hostPath": {"path": str(folder / "host"), "type": "Directory"}},
        {"name": "cloud", "secret": {"secretName": "cloud"}},
    ]
    with running(experiment(role, volumes=volumes), folder) as run:
        assert run.wait(20).phase == "Succeeded", lines(run, "actor")
        assert (folder / "host" / "mark").read_text() == "xx", "the machine's own folder is shared"
        assert (folder / ".callsheet/claims/big/mark").read_text() == "xx", "a claim is shared and stays"
        for index in range(2):
            own = Path(run.layout.volumes) / "actor" / str(index) / "scratch" / "mark"
            assert own.read_text() == "x", "an emptyDir is the replica's own"
        assert lines(run, "actor/0") == ["['TOKEN']"]


def test_keys_and_control_socket_are_the_owners_alone(folder: Path) -> None:
    with running(experiment({"name": "actor", "command": program("patient.py")}), folder) as run:
        until_running(run)
        private = run.layout.private
        assert stat.S_IMODE(private.stat().st_mode) == 0o700
        assert stat.S_IMODE((private / "keys").stat().st_mode) == 0o700
        assert stat.S_IMODE((private / "keys" / "run.key").stat().st_mode) == 0o600
        assert len((private / "keys" / "run.key").read_bytes()) == 32
        assert stat.S_IMODE((private / "control.sock").stat().st_mode) == 0o600


@pytest.mark.parametrize("line", [b"[1]", b"7", b"null", b'"stop"', b"{", b"\xff", b"[" * 200_000, b"{}"])
def test_what_is_no_request_is_answered_and_the_control_socket_goes_on(folder: Path, line: bytes) -> None:
    with running(experiment({"name": "actor", "command": program("patient.py")}), folder) as run:
        until_running(run)
        with run._connect(20) as connection:
            connection.sendall(line + b"\n")
            assert "error" in json.loads(connection.makefile("rb").readline())
        assert run.status().phase == "Running"
        assert Path(run.layout.supervisor_log).read_text() == ""


def test_the_supervisors_own_log_is_bounded(folder: Path) -> None:
    with running(experiment({"name": "actor", "command": program("patient.py")}), folder) as run:
        until_running(run)
        log = Path(run.layout.supervisor_log)
        breaks_it = json.dumps({"op": "restart", "replicas": 5}).encode() + b"\n"
        older = log.with_name("supervisor.log.1")

        def until_rotated() -> bool:
            with run._connect(20) as connection, connection.makefile("rb") as answers:
                for _ in range(200):
                    connection.sendall(breaks_it)
                    assert b"the supervisor failed" in answers.readline()
            return older.exists()

        eventually(until_rotated, within=60)
        first = older.stat().st_ino
        eventually(lambda: until_rotated() and older.stat().st_ino != first, within=60)
        assert b"Traceback" in older.read_bytes()
        assert len(list(log.parent.glob("supervisor.log*"))) == 2


def test_gpus_are_handed_out_once_also_between_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,7")
    show = [
        PYTHON,
        "-I",
        "-S",
        "-u",
        "-c",
        "import os,time; print('sees', os.environ['CUDA_VISIBLE_DEVICES'].split(',')); time.sleep(1000)",
    ]
    learner = {
        "name": "learner",
        "replicas": 2,
        "command": show,
        "resources": {"limits": {"nvidia.com/gpu": 1}},
    }
    actor = {"name": "actor", "command": show}
    with running(experiment(learner, actor), folder) as run:
        seen = {r.name: r.containers[0].last_line for r in until_all_spoke(run).replicas}
        assert sorted([seen["learner/0"], seen["learner/1"]]) == ["sees ['4']", "sees ['5']"]
        assert seen["actor/0"] == "sees ['']", "a replica that asks for no GPU sees none"
        greedy = {**learner, "resources": {"limits": {"nvidia.com/gpu": 1}}}
        with pytest.raises(UserError, match="needs 1 GPUs, and 0 are free"):
            backend("local").start(experiment(greedy), base=folder)
    with running(experiment(learner, actor), folder) as run:
        until_running(run)


def test_more_gpus_than_there_are_is_an_error_before_the_start(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    role = {
        "name": "learner",
        "command": program("patient.py"),
        "resources": {"limits": {"nvidia.com/gpu": 2}},
    }
    with pytest.raises(InvalidExperiment, match="learner needs 2 GPUs, and this machine has 1"):
        backend("local").start(experiment(role), base=folder)
    assert not (folder / "runs").exists()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["pyton3", "x.py"], r"there is no program 'pyton3' on PATH\n    fix: did you mean python"),
        (["./missing.sh"], "there is no program '.*missing.sh'"),
        (["./data.txt"], r"data.txt' is not executable\n    fix: chmod \+x it"),
        ([], "there is no command, and a laptop has no image to take one from"),
    ],
)
def test_a_command_that_cannot_be_run_is_said_before_the_start(
    folder: Path, command: list[str], message: str
) -> None:
    (folder / "data.txt").write_text("no program")
    with pytest.raises(InvalidExperiment, match=message):
        backend("local").start(experiment({"name": "actor", "command": command}), base=folder)
    assert not (folder / "runs").exists()


def test_an_experiment_may_say_that_its_data_plane_is_not_encrypted(folder: Path) -> None:
    said = python("import os; print(os.environ.get('CALLSHEET_ENCRYPTION'))")
    for spec, value in (({}, "None"), ({"encryption": False}, "off")):
        with running(experiment({"name": "actor", "command": said}, **spec), folder) as run:
            run.wait(20)
            assert lines(run, "actor") == [value]
