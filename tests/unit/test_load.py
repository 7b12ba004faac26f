"""Loading experiments: files, folders, standard input and `--set`."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from strategies import experiments

from callsheet.errors import InvalidExperiment, Problem, UserError
from callsheet.plan.load import load
from callsheet.spec.dump import to_yaml
from callsheet.spec.experiment import Experiment

TEXT = """\
apiVersion: callsheet.dev/v1alpha1
kind: Experiment
metadata: {name: NAME}
spec:
  roles:
  - name: learner            # the one that learns
    command: [python, learner.py]
    binds: [{name: trajectories}]
  - name: actor
    scale: {min: 1, max: 64}
    command: [python, actor.py, "{trajectories.addr}"]
    connects: [trajectories]
"""


def write(folder: Path, name: str, *experiments: str) -> str:
    file = folder / name
    file.write_text("---\n".join(TEXT.replace("NAME", experiment) for experiment in experiments))
    return str(file)


def problems(*paths: str, sets: tuple[str, ...] = ()) -> list[Problem]:
    with pytest.raises(InvalidExperiment) as caught:
        load(paths, sets=sets)
    return caught.value.problems


def test_a_file_gives_its_experiment_with_its_folder_and_its_text(tmp_path: Path) -> None:
    file = write(tmp_path, "x.yaml", "rl")
    (loaded,) = load([file])
    assert loaded.experiment.name == "rl"
    assert loaded.experiment.spec.roles[1].connects == ["trajectories"]
    assert (loaded.base, loaded.file) == (tmp_path, file)
    assert loaded.text == TEXT.replace("NAME", "rl")


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("spec.roles[actor].command", "11:14"),
        ("spec.roles[actor].image", "9:5"),
        ("spec.roles[learner].binds[trajectories].port", "8:13"),
        ("spec.roles[learner].resources.limits[nvidia.com/gpu]", "6:5"),
        ("spec.roles[nobody]", "6:3"),
        ("spec.volumes[data]", "5:3"),
        ("", "1:1"),
    ],
)
def test_a_mistake_found_later_gets_its_place_or_that_of_what_is_around_it(
    tmp_path: Path, path: str, place: str
) -> None:
    (loaded,) = load([write(tmp_path, "x.yaml", "rl")])
    assert loaded.placed(Problem(path, "wrong")).place == f"{tmp_path}/x.yaml:{place}"
    with pytest.raises(InvalidExperiment) as caught, loaded.placing():
        raise InvalidExperiment([Problem(path, "wrong")])
    assert str(caught.value).startswith(f"{tmp_path}/x.yaml:{place}: ")


def test_a_mistake_in_what_a_flag_set_names_the_flag(tmp_path: Path) -> None:
    (loaded,) = load([write(tmp_path, "x.yaml", "rl")], sets=["workdir.path=nowhere"])
    assert loaded.placed(Problem("spec.workdir.path", "wrong")).place == "--set workdir.path=nowhere"


def test_a_relative_path_gives_an_absolute_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "x.yaml", "rl")
    monkeypatch.chdir(tmp_path)
    (loaded,) = load(["x.yaml"])
    assert (loaded.base, loaded.file) == (tmp_path, "x.yaml")


def test_a_file_may_hold_several_experiments(tmp_path: Path) -> None:
    loaded = load([write(tmp_path, "x.yaml", "one", "two")])
    assert [item.experiment.name for item in loaded] == ["one", "two"]
    assert [load(["-"], stdin=io.StringIO(item.text))[0].experiment for item in loaded] == [
        item.experiment for item in loaded
    ]


def test_a_folder_gives_its_yaml_files_in_order_and_skips_other_objects(tmp_path: Path) -> None:
    write(tmp_path, "b.yml", "two")
    write(tmp_path, "a.yaml", "one")
    write(tmp_path, "c.txt", "three")
    (tmp_path / "inner").mkdir()
    write(tmp_path / "inner", "d.yaml", "four")
    (tmp_path / "e.yaml").write_text("apiVersion: v1\nkind: Secret\n---\n- a list\n---\nlr: 0.1\n")
    (tmp_path / "f.yaml").write_text("apiVersion: kubeflow.org/v1beta1\nkind: Experiment\n")
    assert [item.experiment.name for item in load([str(tmp_path)])] == ["one", "two"]


def test_in_a_folder_a_misspelled_experiment_is_still_ours(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(TEXT.replace("NAME", "rl").replace("Experiment", "Experimnt"))
    assert [p.path for p in problems(str(tmp_path))] == ["kind"]


def test_a_dash_reads_standard_input(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    stream = io.TextIOWrapper(io.BytesIO(TEXT.replace("NAME", "rl").encode()))
    (loaded,) = load(["-"], stdin=stream)
    assert (loaded.experiment.name, loaded.base, loaded.file) == ("rl", tmp_path, "<stdin>")


def test_mistakes_of_all_files_are_told_at_once(tmp_path: Path) -> None:
    first, second = write(tmp_path, "a.yaml", "One"), write(tmp_path, "b.yaml", "Two")
    (tmp_path / "c.yaml").write_text("a: [\n")
    found = problems(first, second, str(tmp_path / "c.yaml"))
    assert [(Path(p.file).name, p.line) for p in found] == [("a.yaml", 3), ("b.yaml", 3), ("c.yaml", 2)]


def test_two_experiments_of_one_name_are_a_mistake(tmp_path: Path) -> None:
    first, second = write(tmp_path, "a.yaml", "rl"), write(tmp_path, "b.yaml", "rl", "other")
    (problem,) = problems(first, second)
    assert problem.place == f"{second}:3:18"
    assert first in problem.message


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: folder / "none.yaml", "there is no file"),
        (lambda folder: folder / "none" / "x.yaml", "there is no file"),
        (lambda folder: folder, "contains no .yaml or .yml file"),
        (lambda folder: "x" * 5000, "cannot read"),
    ],
)
def test_nothing_to_read_is_said_plainly(tmp_path: Path, make: object, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        load([str(make(tmp_path))])  # type: ignore[operator]
    assert caught.value.fix


def test_a_missing_file_names_those_beside_it(tmp_path: Path) -> None:
    write(tmp_path, "experiment.yaml", "rl")
    with pytest.raises(UserError) as caught:
        load([str(tmp_path / "experment.yaml")])
    assert caught.value.fix == "use one of: experiment.yaml"


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n---\n"])
def test_a_file_without_a_document_is_said_plainly(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(UserError, match="there is no experiment in"):
        load([str(tmp_path / "x.yaml")])


@contextmanager
def as_nobody() -> Iterator[None]:
    """Root may read everything, so it becomes someone else for a moment."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_file_or_folder_that_may_not_be_read_is_said_plainly(tmp_path: Path) -> None:
    file = write(tmp_path, "x.yaml", "rl")
    Path(file).chmod(0)
    for path in (file, str(tmp_path)):
        with as_nobody(), pytest.raises(UserError, match="no permission to read") as caught:
            load([path])
        assert caught.value.fix == "check its permissions"


def test_missing_standard_input_is_said_plainly() -> None:
    with pytest.raises(UserError, match="no standard input"):
        load(["-"])


def test_a_file_too_large_is_refused_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_bytes(b"#" * 10_000_000)
    (problem,) = problems(str(tmp_path / "x.yaml"))
    assert problem.place == f"{tmp_path}/x.yaml:1:1"


@pytest.mark.parametrize(
    ("flag", "read"),
    [
        ("roles.actor.replicas=8", lambda spec: spec.roles[1].replicas == 8),
        ("roles[actor].replicas=8", lambda spec: spec.roles[1].replicas == 8),
        ("roles.1.replicas=8", lambda spec: spec.roles[1].replicas == 8),
        ("roles.actor.command.1=other.py", lambda spec: spec.roles[1].command[1] == "other.py"),
        ("roles.actor.args=[--fast, '8']", lambda spec: spec.roles[1].args == ["--fast", "8"]),
        ("lifecycle.deadline=1h", lambda spec: spec.lifecycle.deadline == "1h"),
        (
            "roles.learner.resources.limits[nvidia.com/gpu]=2",
            lambda spec: spec.roles[0].resources.limits == {"nvidia.com/gpu": "2"},
        ),
        ("files['config.py']=lr = 0.1", lambda spec: spec.files == {"config.py": "lr = 0.1"}),
        ("roles.actor.scale=", lambda spec: spec.roles[1].scale is None),
    ],
)
def test_set_changes_the_experiment_and_its_text(tmp_path: Path, flag: str, read: object) -> None:
    (loaded,) = load([write(tmp_path, "x.yaml", "rl")], sets=[flag])
    assert read(loaded.experiment.spec)  # type: ignore[operator]
    (again,) = load(["-"], stdin=io.StringIO(loaded.text))
    assert again.experiment == loaded.experiment


@pytest.mark.parametrize(
    ("flag", "path", "fix"),
    [
        ("roles.actor.replicas=x", "spec.roles[actor].replicas", "write a whole number"),
        ("roles.actor.replicas=100", "spec.roles[actor].replicas", "write replicas: 64"),
        ("roles.actor.replicass=8", "spec.roles[actor].replicass", "did you mean replicas?"),
        ("roles.actr.replicas=8", "spec.roles", "did you mean actor?"),
        ("roles.xyz.replicas=8", "spec.roles", "use one of learner, actor"),
        ("roles.actor.command.9=x", "spec.roles.actor.command", "write a number below 3"),
        ("roles.actor.name.x=8", "spec.roles.actor.name", "shorten the path"),
        ("roles.learner.scale.min=1", "spec.roles[learner].scale.max", "add max: ..."),
    ],
)
def test_a_mistake_in_set_is_shown_as_the_flags(tmp_path: Path, flag: str, path: str, fix: str) -> None:
    (problem,) = problems(write(tmp_path, "x.yaml", "rl"), sets=(flag,))
    assert problem.place == f"--set {flag}"
    assert problem.path == path
    assert fix in problem.fix


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("roles.actor.replicas", "is not path=value"),
        ("=8", "is not path=value"),
        ("roles..x=8", "is not path=value"),
        ("spec.roles.actor.replicas=8", "starts with spec"),
        ("roles.actor.args=[a", "cannot be read: this list in [ ]"),
        ("image={a: 1, a: 2}", "cannot be read: duplicate key 'a'"),
    ],
)
def test_a_set_that_cannot_be_read_is_said_plainly(tmp_path: Path, flag: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        load([write(tmp_path, "x.yaml", "rl")], sets=[flag])
    assert message in caught.value.message
    assert caught.value.fix


def test_set_changes_every_experiment_that_has_the_place(tmp_path: Path) -> None:
    file = write(tmp_path, "x.yaml", "one", "two")
    text = Path(file).read_text().replace("name: actor", "name: worker", 1)
    Path(file).write_text(text)
    loaded = load([file], sets=["roles.actor.replicas=8"])
    assert [item.experiment.spec.roles[1].replicas for item in loaded] == [1, 8]


def test_set_changes_one_of_two_places_that_share_an_alias(tmp_path: Path) -> None:
    text = TEXT.replace("NAME", "rl").replace("[python, learner.py]", "&c [python, x.py]")
    (tmp_path / "x.yaml").write_text(text.replace('[python, actor.py, "{trajectories.addr}"]', "*c"))
    (loaded,) = load([str(tmp_path / "x.yaml")], sets=["roles.actor.command.0=python3"])
    assert [role.command[0] for role in loaded.experiment.spec.roles] == ["python", "python3"]


@settings(max_examples=25, deadline=None)
@given(experiments())
@pytest.mark.long
def test_an_experiment_written_as_yaml_loads_as_the_same(made: Experiment) -> None:
    (loaded,) = load(["-"], stdin=io.StringIO(to_yaml(made)))
    assert loaded.experiment == made
    assert to_yaml(loaded.experiment) == to_yaml(made)
