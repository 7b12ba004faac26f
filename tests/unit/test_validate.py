"""Mistakes of shape: each is told once, at its place, with what to write instead."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callsheet.errors import InvalidExperiment, Problem
from callsheet.plan.load import load

DATA = Path(__file__).parent.parent / "data"
HEADER = "apiVersion: callsheet.dev/v1alpha1\nkind: Experiment\nmetadata: {name: rl}\n"


def problems(tmp_path: Path, text: str, *, header: str = HEADER) -> list[Problem]:
    file = tmp_path / "x.yaml"
    file.write_text(header + text)
    try:
        load([str(file)])
    except InvalidExperiment as error:
        return error.problems
    return []


def only(tmp_path: Path, role: str) -> Problem:
    """The one problem in an experiment with the role `a`, to which these keys are added."""
    found = problems(tmp_path, f"spec: {{roles: [{{name: a, {role}}}]}}")
    assert len(found) == 1, found
    return found[0]


def test_twelve_planted_mistakes_are_found_each_once_at_its_place() -> None:
    with pytest.raises(InvalidExperiment) as caught:
        load([str(DATA / "twelve-mistakes.yaml")])
    found = [(p.line, p.column, p.path) for p in caught.value.problems]
    assert found == [
        (7, 3, "spec.imagee"),
        (10, 12, "spec.env[VERBOSE].value"),
        (13, 27, "spec.volumes[scratch].emptyDir.sizeLimit"),
        (16, 35, "spec.roles[learner].command[2]"),
        (19, 28, "spec.roles[learner].binds[params].port"),
        (20, 15, "spec.roles[learner].podPatch"),
        (22, 15, "spec.roles[actor].replicas"),
        (24, 33, "spec.roles[actor].command[2]"),
        (25, 16, "spec.roles[actor].connects[0]"),
        (27, 5, "spec.roles[actor].env"),
        (28, 5, "spec.roles[2].nme"),
        (31, 15, "spec.lifecycle.success[0]"),
    ]
    assert all(p.message and p.fix for p in caught.value.problems)


def test_a_problem_reads_as_place_path_message_and_fix(tmp_path: Path) -> None:
    problem = only(tmp_path, "replica: 3")
    place = f"{tmp_path}/x.yaml:4:26: spec.roles[a].replica"
    assert str(problem) == f"{place}: unknown key 'replica'\n    fix: did you mean replicas?"


@pytest.mark.parametrize(
    ("role", "path", "message", "fix"),
    [
        ("command: [{index}]", "command[0]", "unquoted {index} as a mapping", 'write "{index}" in quotes'),
        ("command: [{{index}}]", "command[0]", "a mapping cannot be a key", 'quote it: "{{index}}"'),
        ("args: [8]", "args[0]", "the number 8", 'quote it: "8"'),
        ("args: [0x10]", "args[0]", "the number 0x10", 'quote it: "0x10"'),
        ("args: [off]", "args[0]", "an unquoted off as false", 'quote it: "off"'),
        ("args: [y]", "args[0]", "an unquoted y as true", 'quote it: "y"'),
        ("args: [[x]]", "args[0]", "a list", "write text"),
        ("command: python 'my actor.py'", "command", "expected a list", "[python, my actor.py]"),
        ("command: sleep 5", "command", "expected a list", '[sleep, "5"]'),
        ('command: "run {index} off"', "command", "expected a list", '[run, "{index}", "off"]'),
        ("binds: [t]", "binds[0]", "expected a mapping, found 't'", "write {name: t}"),
        ("binds: {t: 9999}", "binds", "expected a list, found a mapping", "[{name: t, port: 9999}]"),
        ("env: {A: b}", "env", "expected a list, found a mapping", '[{name: A, value: "b"}]'),
        ("env: [A=b]", "env[0]", "expected a mapping", '{name: A, value: "b"}'),
        ("connects: [{name: t}]", "connects[t]", "expected text", "write the name alone: t"),
        ('replicas: "3"', "replicas", "expected a whole number, found '3'", "remove the quotes: 3"),
        ("replicas: 1.5", "replicas", "the number 1.5", "write a whole number"),
        ("replicas: -1", "replicas", "-1 is too small", "at least 0"),
        ("replicas: 1000000", "replicas", "1000000 is too large", "at most 100000"),
        ("tty: maybe", "tty", "expected true or false, found 'maybe'", "write true or false"),
        (
            "restart: {policy: always}",
            "restart.policy",
            "not one of Always, OnFailure",
            "did you mean Always?",
        ),
        (
            "restart: {policy: Sometimes}",
            "restart.policy",
            "'Sometimes' is not",
            "Always, OnFailure or Never",
        ),
        ("binds: [{name: 5}]", "binds[0].name", "the number 5", "write a name: lowercase letters"),
        ("restart: OnFailure", "restart", "expected a mapping", "key: value"),
        ("podPatch: text", "podPatch", "expected a mapping", "key: value"),
        ("containerPatch: []", "containerPatch", "expected a mapping", "key: value"),
        ("resources: {limits: {cpu: 1.50}}", "resources.limits.cpu", "1.50 is not", 'quote it: "1.50"'),
        (
            "resources: {limits: {nvidia.com/gpu: 1.5}}",
            "resources.limits['nvidia.com/gpu']",
            "1.5 is not",
            "nvidia.com/gpu comes in whole numbers: write 1, 2, ...",
        ),
        ("resources: {limits: {memory: 1GiB}}", "resources.limits.memory", "'1GiB' is not", "10Gi"),
        ("terminationGracePeriod: 30", "terminationGracePeriod", "number 30 is not a duration", "30s"),
        ("ports: []", "ports", "unknown key 'ports'", "write binds:"),
        ("volumes: []", "volumes", "unknown key 'volumes'", "volumes belongs under spec"),
        ("xyzzy: 1", "xyzzy", "unknown key 'xyzzy'", "valid keys are name, image"),
        ("scale: {min: 1}", "scale.max", "max is missing", "add max: ..."),
        (
            "readinessProbe: {tcpSocket: {port: 1.5}}",
            "readinessProbe.tcpSocket.port",
            "expected a whole number or text",
            'quote it: "1.5"',
        ),
        ("args: [!secret x]", "args[0]", "unknown tag !secret", "remove it"),
    ],
)
def test_a_wrong_shape_says_what_to_write(
    tmp_path: Path, role: str, path: str, message: str, fix: str
) -> None:
    problem = only(tmp_path, role)
    assert problem.path == f"spec.roles[a].{path}"
    assert message in problem.message
    assert fix in problem.fix


def test_a_missing_key_is_told_at_the_mapping_that_lacks_it(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, "spec:\n  roles:\n  - name: a\n    binds:\n    - port: 80\n")
    assert (problem.line, problem.column, problem.path) == (8, 7, "spec.roles[a].binds[0].name")
    assert problem.message == "name is missing"


def test_a_key_without_a_value_is_an_absent_key(tmp_path: Path) -> None:
    assert problems(tmp_path, "spec:\n  env:\n  roles:\n  - name: a\n    command:\n    podPatch:\n") == []


def test_an_item_is_called_by_its_number_when_its_name_is_not_its_own(tmp_path: Path) -> None:
    found = problems(tmp_path, "spec: {roles: [{name: a, tty: 1}, {name: a}, {name: b, tty: 1}]}")
    assert [p.path for p in found] == ["spec.roles[0].tty", "spec.roles[1].name", "spec.roles[b].tty"]


def test_what_an_alias_repeats_is_one_mistake(tmp_path: Path) -> None:
    text = "spec:\n  roles:\n  - {name: a, resources: &r {limit: {}}}\n  - {name: b, resources: *r}\n"
    assert [p.path for p in problems(tmp_path, text)] == ["spec.roles[a].resources.limit"]


@pytest.mark.parametrize(
    "role",
    [
        "binds: t, command: ['{t.addr}'], connects: [t]",
        "binds: [{name: t, port: x}], command: ['{t.bind}']",
        "binds: [{nmae: t}], command: ['{t.port}']",
        "connects: t, command: ['{t.addr}'], containers: []",
        "replicas: x, scale: {min: 2, max: 3}",
        "scale: {min: x, max: 0}",
        "env: [{name: A, value: 8}]",
        "env: [{name: A, valueFrom: {secretKeyRef: x}}]",
        "readinessProbe: {tcpSocket: 80}",
        "readinessProbe: {tcpSocket: {port: t}}, binds: t",
        "volumeMounts: [{name: v}], command: ['{mounts.v}']",
        "envFrom: [{secretRef: x}]",
        "restart: {policy: alway}",
    ],
)
def test_a_mistake_of_shape_has_no_followers(tmp_path: Path, role: str) -> None:
    others = "{name: b, binds: [{name: t}]}" if "connects: t," in role else "{name: b}"
    found = problems(
        tmp_path, f"spec: {{volumes: [{{name: v, emptyDir: {{}}}}], roles: [{{name: a, {role}}}, {others}]}}"
    )
    assert len(found) == 1, found


def test_names_of_misshapen_things_still_count_as_there(tmp_path: Path) -> None:
    text = """spec:
  files: [config.py]
  volumes: [{name: v, emptyDir: x}]
  roles:
  - {name: a, tty: 1, binds: [t]}
  - {name: b, connects: [t], command: ["{t.addr}", "{mounts.v}"], volumeMounts: [{name: v, mountPath: /v}]}
  lifecycle: {success: [a]}
"""
    found = problems(tmp_path, text)
    assert [p.path for p in found] == [
        "spec.files",
        "spec.volumes[v].emptyDir",
        "spec.roles[a].tty",
        "spec.roles[a].binds[0]",
    ]


@pytest.mark.parametrize(
    ("header", "path", "fix"),
    [
        ("kind: Experiment\nmetadata: {name: rl}\n", "apiVersion", "add apiVersion: callsheet.dev/v1alpha1"),
        ("apiVersion: callsheet.dev/v1alpha1\nmetadata: {name: rl}\n", "kind", "add kind: Experiment"),
        (HEADER.replace("v1alpha1", "v1"), "apiVersion", "write apiVersion: callsheet.dev/v1alpha1"),
        (HEADER.replace("Experiment", "Experimnt"), "kind", "write kind: Experiment"),
        (HEADER.replace("Experiment", "Job"), "kind", "write kind: Experiment, or remove the document"),
        (HEADER.replace("{name: rl}", "{nam: rl}"), "metadata.name", "did you mean name instead of nam?"),
        (HEADER.replace("metadata: {name: rl}\n", ""), "metadata", "add metadata: ..."),
    ],
)
def test_a_wrong_header_says_what_to_write(tmp_path: Path, header: str, path: str, fix: str) -> None:
    (problem,) = problems(tmp_path, "spec: {roles: [{name: a}]}", header=header)
    assert (problem.path, problem.fix) == (path, fix)


def test_another_kind_of_object_is_not_taken_apart(tmp_path: Path) -> None:
    header = "apiVersion: apps/v1\nkind: Deployment\n"
    (problem,) = problems(tmp_path, "spec: {template: {spec: {containers: []}}}", header=header)
    assert problem.message == "this document has kind Deployment, not Experiment"


def test_a_problem_of_the_whole_file_has_no_path(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, "a: [\n", header="")
    assert str(problem).startswith(f"{tmp_path}/x.yaml:2:1: a value is missing inside brackets")


def test_a_document_that_is_no_mapping_is_refused(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, "- a\n- b\n", header="")
    assert problem.message == "an experiment is a mapping, not a list"


@pytest.mark.parametrize("text", ["spec: {}", "spec: {roles: []}", "spec: {roles: {a: {}}}", "spec: 8", ""])
def test_an_experiment_without_roles_is_one_mistake(tmp_path: Path, text: str) -> None:
    assert len(problems(tmp_path, text)) == 1


def test_a_status_and_a_clusters_metadata_are_no_mistakes(tmp_path: Path) -> None:
    header = HEADER.replace("{name: rl}", "{name: rl, uid: abc, resourceVersion: '1'}")
    assert problems(tmp_path, "spec: {roles: [{name: a}]}\nstatus: {phase: Running}\n", header=header) == []


def test_of_very_many_mistakes_the_first_are_shown(tmp_path: Path) -> None:
    found = problems(tmp_path, "spec:\n  roles:\n" + "  - {name: a, unknown: 1}\n" * 1_000)
    assert len(found) == 501
    assert "this document has 1,000 mistakes" in found[0].message


SIGNS = st.sampled_from("{}[]:-\"'|?,&*!\n\t")
WORDS = st.sampled_from(
    ["yes", "8", "1.5", "null", "{index}", "&a ", "*a", "<<: *a", "!!str ", "name", "env", "spec"]
)
EDITS = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 30), SIGNS | WORDS), min_size=1, max_size=6)


@settings(max_examples=200, deadline=None)
@given(EDITS)
def test_whatever_is_written_the_answer_is_a_list_of_problems(edits: list[tuple[float, int, str]]) -> None:
    text = (DATA / "twelve-mistakes.yaml").read_text()
    for where, length, piece in edits:
        start = int(where * len(text))
        text = text[:start] + piece + text[start + length :]
    with pytest.raises(InvalidExperiment) as caught:
        load(["-"], stdin=io.StringIO(text))
    assert all(problem.line and problem.message and problem.fix for problem in caught.value.problems)
