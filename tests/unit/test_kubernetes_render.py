"""An experiment as Kubernetes objects: compared with golden files, pure, and bounded by the roles.

To take up a wanted change: `CALLSHEET_UPDATE_GOLDEN=1 pytest tests/unit/test_kubernetes_render.py`, then read the diff.
"""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from callsheet.backends.kubernetes.backend import KubernetesBackend
from callsheet.backends.kubernetes.render.objects import manifests, render, to_text
from callsheet.backends.kubernetes.render.patch import merge
from callsheet.backends.kubernetes.render.workdir import LARGEST_FOLDER, CodeFile, collect, pack
from callsheet.errors import InvalidExperiment
from callsheet.plan.load import load
from callsheet.plan.template import fill, parse
from callsheet.spec.experiment import Experiment

GOLDEN = Path(__file__).parent.parent / "golden" / "kubernetes"
EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def experiment(*roles: dict[str, Any], **spec: Any) -> Experiment:
    data = {"metadata": {"name": "exp"}, "spec": {"image": "rl:1", "roles": list(roles), **spec}}
    return Experiment.model_validate(data)


def of_kind(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [made for made in objects if made["kind"] == kind]


@pytest.mark.parametrize(
    ("source", "golden"),
    [
        (GOLDEN / "everything.yaml", "everything.golden.yaml"),
        (EXAMPLES / "tzmq" / "experiment.yaml", "tzmq.golden.yaml"),
        (EXAMPLES / "simulation" / "experiment.yaml", "simulation.golden.yaml"),
    ],
)
def test_the_manifests_are_the_golden_ones(source: Path, golden: str) -> None:
    (loaded,) = load([str(source)])
    code = {"learner.py": CodeFile(b"print('hi')\n"), "run.sh": CodeFile(b"#!/bin/sh\n", executable=True)}
    text = to_text(render(loaded.experiment, "r123", code))
    path = GOLDEN / golden
    if os.environ.get("CALLSHEET_UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def test_rendering_is_pure_and_needs_no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    (loaded,) = load([str(GOLDEN / "everything.yaml")])
    code = {"a.py": CodeFile(b"a"), "b.bin": CodeFile(bytes(range(256)))}
    assert render(loaded.experiment, "r1", code) == render(
        loaded.experiment, "r1", dict(reversed(code.items()))
    )


def test_the_number_of_objects_grows_with_roles_not_replicas() -> None:
    few = render(experiment({"name": "actor", "replicas": 1, "command": ["a"]}), "r1", {})
    many = render(experiment({"name": "actor", "replicas": 5000, "command": ["a"]}), "r1", {})
    assert len(many) == len(few)


def test_scaling_changes_the_book_and_sizes_and_no_template() -> None:
    roles = (
        {"name": "server", "binds": [{"name": "echo"}], "command": ["s"], "restart": {"policy": "Always"}},
        {
            "name": "actor",
            "replicas": 2,
            "scale": {"min": 1, "max": 9},
            "connects": ["echo"],
            "command": ["a"],
        },
    )
    exp = experiment(*roles)
    before, after = render(exp, "r1", {}), render(exp, "r1", {}, replicas={"actor": 9})
    changed = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    assert [old["kind"] for old, _ in changed] == ["ConfigMap", "Job"]
    job_before, job_after = changed[1]
    assert job_before["spec"]["template"] == job_after["spec"]["template"]
    assert (job_after["spec"]["completions"], job_after["spec"]["parallelism"]) == (9, 9)


def test_a_missing_image_is_an_error_here(tmp_path: Path) -> None:
    bare = Experiment.model_validate(
        {"metadata": {"name": "e"}, "spec": {"roles": [{"name": "a", "command": ["a"]}]}}
    )
    with pytest.raises(InvalidExperiment, match="has no image"):
        render(bare, "r1", {})
    with pytest.raises(InvalidExperiment, match="has no image"):
        KubernetesBackend().check(bare, base=tmp_path)  # asks no cluster


def test_a_users_dollar_parentheses_survive_kubernetes_own_expansion() -> None:
    role = {
        "name": "a",
        "command": ["sh", "-c", "echo $(hostname) {index}"],
        "env": [{"name": "X", "value": "$(Y)"}],
    }
    (job,) = of_kind(render(experiment(role), "r1", {}), "Job")
    container = job["spec"]["template"]["spec"]["containers"][0]
    assert container["command"][2] == "echo $$(hostname) $(CALLSHEET_INDEX)"
    assert {"name": "X", "value": "$$(Y)"} in container["env"]


def expanded(text: str, variables: dict[str, str]) -> str:
    """What the kubelet makes of a word: `$(NAME)` is a variable's value, and two dollars are one."""
    return re.sub(
        r"\$(\$|\((?P<name>[^)]*)\))",
        lambda found: "$" if found["name"] is None else variables.get(found["name"], found[0]),
        text,
    )


@given(st.text(alphabet="$(){}ax", max_size=12), st.text(alphabet="$(){}ax", max_size=12))
def test_no_dollar_of_a_user_is_lost_on_the_way(before: str, after: str) -> None:
    (job,) = of_kind(
        render(experiment({"name": "a", "command": [f"{before}{{index}}{after}"]}), "r1", {}), "Job"
    )
    (word,) = job["spec"]["template"]["spec"]["containers"][0]["command"]
    assume("$(CALLSHEET_INDEX)" in word)  # else the braces around it made something else of it
    here = fill(parse(f"{before}{{index}}{after}", {}), lambda placeholder: "7")
    assert expanded(word, {"CALLSHEET_INDEX": "7"}) == here


def test_the_shells_own_process_id_survives() -> None:
    role = {"name": "a", "command": ["sh", "-c", "echo $$ ${index} $"]}
    (job,) = of_kind(render(experiment(role), "r1", {}), "Job")
    word = job["spec"]["template"]["spec"]["containers"][0]["command"][2]
    assert word == "echo $$$$ ${index} $$"
    assert expanded(word, {}) == "echo $$ ${index} $"


def test_a_group_becomes_a_main_container_with_native_sidecars() -> None:
    group = [{"name": "main", "command": ["m"]}, {"name": "beside", "command": ["b"]}]
    (job,) = of_kind(render(experiment({"name": "pair", "containers": group}), "r1", {}), "Job")
    pod = job["spec"]["template"]["spec"]
    assert [c["name"] for c in pod["containers"]] == ["main"]
    assert [(c["name"], c["restartPolicy"]) for c in pod["initContainers"]] == [("beside", "Always")]


def test_patches_merge_as_kubernetes_merges_them() -> None:
    pod = {
        "containers": [{"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}],
        "tolerations": [{"key": "a"}],
    }
    patch = {
        "containers": [{"name": "a", "env": [{"name": "Y", "value": "2"}], "image": None}, {"name": "b"}],
        "tolerations": [{"key": "b"}],
    }
    assert merge(pod, patch) == {
        "containers": [
            {"name": "a", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]},
            {"name": "b"},
        ],
        "tolerations": [{"key": "b"}],
    }
    assert merge(pod, {"containers": [{"name": "a", "$patch": "delete"}]})["containers"] == []
    assert merge(pod, {"containers": [{"$patch": "replace"}, {"name": "c"}]})["containers"] == [{"name": "c"}]


def test_the_folder_travels_without_what_git_ignores_and_without_secrets(tmp_path: Path) -> None:
    files = {
        ".gitignore": "*.log\n/build/\n",
        "learner.py": "x",
        "deep/inside.py": "x",
        "deep/.gitignore": "*.tmp\n!keep.log\n",
        "deep/a.tmp": "x",
        "train.log": "x",
        "build/out": "x",
        ".env": "SECRET",
        ".env.local": "SECRET",
        "server.key": "SECRET",
        "id_rsa": "SECRET",
        ".venv/lib/x.py": "x",
        "notes.md": "x",
        "runs/exp/log": "x",
    }
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "run.sh").chmod(0o755)
    (tmp_path / "passwd").symlink_to("/etc/passwd")
    secret = [".ssh/config", ".aws/credentials", ".kube/config", ".netrc", "deep/id_ecdsa.pub", "deep/me.p12"]
    secret += [
        "home/.config/gcloud/x",
        ".git-credentials",
        ".docker/config.json",
        ".pypirc",
        "service-account-1.json",
    ]
    for path in secret:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("SECRET")
    (tmp_path / "deep" / "secret.pem").write_text("SECRET")
    (tmp_path / "deep" / ".gitignore").write_text("*.tmp\n!keep.log\nsecret.pem\n")
    withheld: list[str] = []
    found = collect(tmp_path, ["*.md"], withheld)
    told = [".env", ".env.local", "server.key", "id_rsa", ".ssh/", ".aws/", ".kube/", ".netrc", ".docker/"]
    told += ["deep/id_ecdsa.pub", "deep/me.p12", "home/.config/gcloud/", ".git-credentials", ".pypirc"]
    assert sorted(withheld) == sorted([*told, "service-account-1.json"]), "git knows of the other one"
    assert set(found) == {".gitignore", "learner.py", "deep/.gitignore", "deep/inside.py", "run.sh"}
    (part,) = pack("exp", found)
    modes = {item["path"]: item["mode"] for item in part.items}
    assert (modes["run.sh"], modes["learner.py"]) == (0o555, 0o444)


def test_what_only_looks_like_a_secret_travels_when_the_file_says_so(tmp_path: Path) -> None:
    for name in ("authority.pem", "mine.pem"):
        (tmp_path / name).write_text("x")
    withheld: list[str] = []
    assert set(collect(tmp_path, ["!authority.pem"], withheld)) == {"authority.pem"}
    assert withheld == ["mine.pem"]
    assert collect(tmp_path, ["*"], unasked := []) == {}
    assert unasked == [], "whoever names it need not be told"


def test_a_folder_that_is_too_large_names_its_biggest_files(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(b"x" * (LARGEST_FOLDER + 1))
    (tmp_path / "small.py").write_text("x")
    with pytest.raises(InvalidExperiment, match=r"weights.bin \(8.4 MB\).*\n.*workdir.exclude"):
        collect(tmp_path, [])


def test_data_beside_the_code_is_measured_and_not_read(tmp_path: Path) -> None:
    with (tmp_path / "images.tar").open("wb") as file:
        file.truncate(200 << 30)
    with pytest.raises(InvalidExperiment, match=r"has 214748.4 MB, .* images.tar"):
        collect(tmp_path, [])


def test_a_file_that_cannot_be_read_is_named_and_one_that_went_meanwhile_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "learner.py").write_text("x")
    (tmp_path / ".learner.py.swp").write_text("x")
    read = Path.read_bytes

    def reading(path: Path) -> bytes:
        if path.suffix == ".swp":
            path.unlink()
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", reading)
    assert list(collect(tmp_path, [])) == ["learner.py"]

    def refused(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refused)
    with pytest.raises(InvalidExperiment, match=r"cannot read .*learner.py.: Permission denied\n.*exclude"):
        collect(tmp_path, [])


def test_many_files_are_shared_out_over_several_immutable_maps() -> None:
    code = {f"{i:03}.bin": CodeFile(bytes([255]) * 100_000) for i in range(40)}
    parts = pack("exp", code)
    assert len(parts) == 6
    assert len({part.name for part in parts}) == 6
    assert parts == pack("exp", code)
    assert all(part.manifest({})["immutable"] for part in parts)


@pytest.mark.exclusive
def test_1000_replicas_render_within_100_ms() -> None:
    exp = experiment(
        {"name": "actor", "replicas": 1000, "binds": [{"name": "x"}], "command": ["a", "{index}"]}
    )
    times = []
    for _ in range(5):
        begun = time.process_time()
        to_text(render(exp, "r1", {}))
        times.append(time.process_time() - begun)
    assert min(times) < 0.1


def test_the_same_folder_and_file_give_the_same_run_id(tmp_path: Path) -> None:
    exp = experiment({"name": "a", "command": ["a"]})
    (tmp_path / "a.py").write_text("1")
    first = manifests(exp, tmp_path)
    assert manifests(exp, tmp_path) == first
    (tmp_path / "a.py").write_text("2")
    assert manifests(exp, tmp_path) != first
