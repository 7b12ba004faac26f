"""Files that somebody damaged or made up: each is refused with a sentence, and nothing ends by it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from callsheet.backends.kubernetes.client import kubeconfig
from callsheet.backends.status import Status, status_of
from callsheet.errors import UserError
from callsheet.metrics import reader as reading
from callsheet.rl.learning_curve import KEY, LearningCurve
from callsheet.runtime.replay import Table
from callsheet.runtime.replay.server.snapshot_restore import restore
from callsheet.runtime.schema import Schema
from callsheet.runtime.stream.delivery_log import DeliveryLog
from callsheet.store import BadSet, claim, manifest, open_store

DEEP = "[" * 60_000
LINE: dict[str, Any] = {
    "role": "actor", "index": 1, "container": "actor", "time": 1.0, "interval": 5.0, "last": False,
    "metrics": {}, "rates": {}, "recent": {}, "shown": [],
}  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        DEEP,
        json.dumps(LINE)[:-1] + ', "more": ' + DEEP,
        json.dumps(LINE | {"index": float("inf")}),
        json.dumps(LINE | {"time": None}),
        json.dumps(LINE | {"shown": [7]}),
    ],
    ids=range(5),
)
def test_a_line_of_metrics_that_is_none_is_passed_over(text: str) -> None:
    assert reading.parse(text.encode()) is None


def test_a_number_to_be_shown_that_is_none_is_not_shown() -> None:
    line = LINE | {"shown": [{"name": "x", "value": int("9" * 400)}, {"name": "y", "value": 2.0}]}
    found = reading.parse(json.dumps(line).encode())
    assert found is not None
    assert [one.name for one in reading.shown_by_role([found], ended=True)["actor"]] == ["y"]


def test_an_answer_of_an_absurd_length_is_not_whole() -> None:
    assert not reading.is_complete(b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\nx")


def record(folder: Path, changes: dict[str, Any]) -> None:
    """A manifest with its right hash."""
    data = {
        "format": manifest.FORMAT, "kind": "set", "number": 1, "fence": 1, "incarnation": "a", "created": 1.0, "order": None,
        "name": "s", "folder": "sets/1", "parts": [{"name": "p", "size": 1, "sha256": "0"}], "info": {},
    } | changes  # fmt: skip
    (folder / "manifests").mkdir(exist_ok=True)
    (folder / manifest.key(1)).write_bytes(manifest._canonical(data | {"sha256": manifest._hash(data)}))


@pytest.mark.parametrize(
    "changes",
    [
        {"fence": "1"},
        {"fence": True},
        {"kind": "sett"},
        {"info": []},
        {"order": 1.5},
        {"name": 7},
        {"folder": "../../elsewhere"},
        {"parts": [{"name": "/etc/passwd", "size": 1, "sha256": "0"}]},
        {"parts": [{"name": "p", "size": -1, "sha256": "0"}]},
        {"created": "now"},
    ],
    ids=str,
)
def test_a_manifest_with_values_that_cannot_be_is_bad_though_its_hash_is_right(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    store = open_store(f"file://{tmp_path}")
    record(tmp_path, {})
    assert manifest.read(store, 1).name == "s"
    record(tmp_path, changes)
    with pytest.raises(BadSet, match="damaged"):
        manifest.read(store, 1)


def test_a_manifest_of_nothing_but_depth_is_bad(tmp_path: Path) -> None:
    (tmp_path / "manifests").mkdir()
    (tmp_path / manifest.key(1)).write_text(DEEP)
    with pytest.raises(BadSet, match="not a manifest"):
        manifest.read(open_store(f"file://{tmp_path}"), 1)


SAVED: dict[str, Any] = {
    "name": "replay", "schema": Schema.of({"x": np.zeros(2, np.float32)}).encoded, "first": 0, "next": 0, "lives": [[0, 1]],
    "inserted": 0, "sampled": 0, "highest": 1.0, "marks": {}, "segments": [],
}  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [
        {"next": 5},
        {"first": 5},
        {"next": 1 << 60, "first": 0},
        {"lives": []},
        {"lives": [[0, -1]]},
        {"highest": float("nan")},
        {"schema": b"\x91" * 5000},
        {"segments": [{"key": "segments/1", "start": 0, "count": 1 << 50, "sha256": ""}], "next": 1 << 47},
    ],
    ids=str,
)
def test_a_snapshot_of_a_replay_that_cannot_be_is_bad(tmp_path: Path, changes: dict[str, Any]) -> None:
    store = open_store(f"file://{tmp_path}")
    state = msgspec.msgpack.encode({"tables": [SAVED | changes], "format": 1})
    with claim(store).write_set("s", info={}) as writing:
        writing.put("state", state)
        writing.put("priorities-0", b"")
    with pytest.raises(BadSet):
        restore(store, [Table(items=100)])


@pytest.mark.parametrize(
    "text", [DEEP, "", "[]", '{"experiment": "x"}', '{"experiment": "x", "run": "r", "phase": "Dancing"}']
)
def test_a_damaged_status_is_told_in_a_sentence(text: str) -> None:
    with pytest.raises(UserError, match=r"status\.json is damaged"):
        status_of(text.encode(), "status.json")


def test_a_status_is_read_as_it_was_written() -> None:
    status = Status("x", "run", "Running", warnings=["w"])
    assert status_of(json.dumps(status.to_data() | {"from a later version": 1}).encode()) == status


def test_a_learner_goes_on_with_the_points_of_a_curve_that_are_whole(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}")
    lines = [
        '{"elapsed": 1.0, "steps": 5}',
        DEEP,
        "[]",
        '{"elapsed": "x"}',
        '{"steps": 1}',
        '{"elapsed": 2.0, "st',
    ]
    store.put(KEY, ("\n".join(lines)).encode() + b"\xff")
    assert LearningCurve(store).points == [{"elapsed": 1.0, "steps": 5}]


@pytest.mark.parametrize(
    "text",
    [
        DEEP,
        "- " * 60_000,
        "{a: &a [*a]}",
        "current-context: [x]\ncontexts: 7",
        "contexts: [{name: c, context: x}]",
    ],
)
def test_a_kubeconfig_that_is_none_is_told_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(path))
    with pytest.raises(UserError, match="kubeconfig"):
        kubeconfig.read()


@pytest.mark.parametrize(
    "cursor", [{"a": [[float("inf"), 1]]}, {"a": [[1, 1 << 64]]}, {"a": [[-1, 1]]}, {"a": 7}, {"a": [[1]]}]
)
def test_a_cursor_that_cannot_be_is_told_in_a_sentence(cursor: Any) -> None:
    with pytest.raises(UserError, match="not a cursor"):
        DeliveryLog(cursor)
