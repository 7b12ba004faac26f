"""The parsers that read bytes from outside, with valid input of each to begin with."""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import yaml

from callsheet.backends.kubernetes.client import kubeconfig
from callsheet.backends.status import ContainerStatus, ReplicaStatus, RoleStatus, Status, status_of
from callsheet.compat.dijob.convert import convert
from callsheet.errors import UserError
from callsheet.metrics import reader as reading
from callsheet.plan.load import load
from callsheet.rl import checkpoints, learning_curve
from callsheet.runtime.link import protocol as m
from callsheet.runtime.link.frame import Frame
from callsheet.runtime.link.protocol import BadMessage
from callsheet.runtime.parameters import protocol as parameters
from callsheet.runtime.policy import protocol as policy
from callsheet.runtime.replay import Table
from callsheet.runtime.replay import protocol as replay
from callsheet.runtime.replay.server.snapshot_format import ReplaySnapshot, SavedTable, Segment
from callsheet.runtime.replay.server.snapshot_restore import _load
from callsheet.runtime.replay.server.snapshot_writer import STATE
from callsheet.runtime.schema import Schema
from callsheet.runtime.stream.delivery_log import DeliveryLog, decode_acknowledgement
from callsheet.store import BadSet, Store, manifest, open_store
from callsheet.store.manifest import ManifestRecord, PartInfo
from tools.fuzz.chance import Chance
from tools.fuzz.parsers import Parser, as_json, as_yaml

_EXAMPLES: Final = Path(__file__).parents[2] / "examples"
_SCHEMA: Final = Schema.of({"x": np.zeros((4, 2), np.float32), "n": np.int64(0)}, free={"x": (0,)})


@cache
def _store() -> Store:
    """A store for one process."""
    folder = tempfile.mkdtemp(prefix="fuzz-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return open_store(f"file://{folder}")


def _file(name: str, data: bytes) -> Path:
    path = Path(_store().url.removeprefix("file://")) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def _packed(name: str, call: Callable[[bytes], object], *values: Any, allowed: Any = BadMessage) -> Parser:
    plain = [msgspec.msgpack.decode(msgspec.msgpack.encode(value)) for value in values]
    return Parser(
        name,
        call,
        allowed if isinstance(allowed, tuple) else (allowed,),
        lambda chance: chance.packed(chance.choice(plain)),
    )


def _prefixed(kind: int, call: Callable[[bytes], object]) -> Callable[[bytes], object]:
    def parse(data: bytes) -> object:
        message = m.encode(kind) + data
        m.decode_prefix(message)
        return call(message)

    return parse


def _frame(data: bytes) -> object:
    header = m.decode_header(m.encode(m.DATA) + data)
    payload = memoryview(bytes(_SCHEMA.layout(3, ((4, 2), ())).nbytes))
    return Frame(header, payload, 0, None, lambda block: None).arrays(_SCHEMA)


def _releases(chance: Chance) -> bytes:
    return chance.bytes_changed(m.encode_release([chance.randrange(64) for _ in range(chance.randrange(65))]))


def _schema(data: bytes) -> object:
    found = Schema.decode(data)
    return found.fixed and found.layout(3).nbytes, str(found), _SCHEMA.difference(found)


def _response(chance: Chance) -> bytes:
    body = as_json(chance, _LINE)
    length = chance.choice((len(body), len(body) + 1, 0, -1, 1 << 70, "x", "9" * 5000))
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n".encode()
    return (chance.bytes_changed(head) if chance.random() < 0.3 else head) + body


def _answered(data: bytes) -> object:
    reading.is_complete(data)
    return reading.from_response(data)


def _shown(data: bytes) -> object:
    found = reading.parse(data)
    if found is None:
        return None
    current = reading.shown_by_role([found], ended=True)
    return current, found.name, found.is_current(0.0), json.dumps(found.to_data())


def _manifest(data: bytes) -> object:
    _file("row/manifests/000000000007.json", data)
    return manifest.read(_store().sub("row"), 7)


def _hashed(chance: Chance) -> bytes:
    """A manifest with changes, and with the hash that belongs to them."""
    if chance.random() < 0.5:
        return as_json(chance, json.loads(_RECORD.encode()))
    data = chance.changed(
        {key: value for key, value in json.loads(_RECORD.encode()).items() if key != "sha256"}
    )
    try:
        return manifest._canonical(data | {"sha256": manifest._hash(data)})
    except (TypeError, ValueError):
        return as_json(chance, data)


def _snapshot(data: bytes) -> object:
    class Found:
        """A set as `latest` finds it."""

        name = "s"

        def read(self, part: str) -> bytes:
            return data if part == STATE else bytes(12)

    store = _store().sub("segments-of")
    _file("segments-of/segments/1", bytes(3 * 40))
    return _load(store, Found(), {"replay": Table(items=10)})  # type: ignore[arg-type]


def _kubeconfig(data: bytes) -> object:
    return kubeconfig._choose(kubeconfig._merge([_file("kubeconfig", data)]), "")


def _experiment(data: bytes) -> object:
    return load([str(_file("experiment.yaml", data))])


def _curve(data: bytes) -> object:
    _file(f"curve/{learning_curve.KEY}", data)
    found = learning_curve.LearningCurve(_store().sub("curve"))
    found.truncate(100)
    found.add(1e9, {"steps": 1})
    return len(found.points)


def _yaml(name: str, call: Callable[[bytes], object], text: str) -> Parser:
    value = next(yaml.safe_load_all(text))
    return Parser(name, call, (UserError,), lambda chance: as_yaml(chance, text, value))


_LINE: Final = {
    "role": "actor", "index": 3, "container": "actor", "time": 1700000000.5, "interval": 5.0, "last": False,
    "metrics": {"callsheet_steps_total": 17, "h": {"count": 3, "sum": 1.5, "buckets": {"1.0": 2, "+Inf": 3}}},
    "rates": {"callsheet_steps_total": 3.5}, "recent": {"h": {"0.5": 1.0, "0.99": None}},
    "shown": [{"name": "steps", "metric": "callsheet_steps_total", "kind": "counter", "unit": "", "show": "rate", "merge": "sum"}],
}  # fmt: skip
_RECORD: Final = ManifestRecord(
    "set",
    7,
    3,
    "abc",
    1.5,
    None,
    "step-7",
    "sets/7",
    (PartInfo("state", 10, "0" * 64),),
    {"step": 7, "identity": {"env": "x"}},
)
_STATUS: Final = Status(
    "x", "run-1", "Running", roles=[RoleStatus("actor", 2)], exposed={"web": "127.0.0.1:80"}, warnings=["w"],
    replicas=[ReplicaStatus("actor", 0, "h", "Running", containers=[ContainerStatus("actor", 77)])],
)  # fmt: skip
_SAVED: Final = ReplaySnapshot(
    [
        SavedTable("replay", Schema.of({"x": np.zeros(10, np.float32)}).encoded, 0, 3, [(0, 1)], 3, 0, 1.0, {"a": [[1, 3]]},
              [Segment("segments/1", 0, 3, "0" * 64)])
    ]
)  # fmt: skip
_KUBECONFIG: Final = """apiVersion: v1
kind: Config
current-context: c
clusters: [{name: k, cluster: {server: "https://127.0.0.1:6443", certificate-authority: ca.crt}}]
users: [{name: u, user: {token: secret, exec: {command: aws, args: [a], env: [{name: A, value: b}]}}}]
contexts:
- name: c
  context: {cluster: k, user: u, namespace: n}
"""


def _checkpoint(chance: Chance) -> bytes:
    data = checkpoints._encode({"w": np.zeros((3, 4), np.float32), "b": np.arange(4)})
    if chance.random() < 0.5:
        return chance.bytes_changed(data)
    length = int.from_bytes(data[:8], "little")
    head = as_json(chance, json.loads(data[8 : 8 + length]))
    told = len(head) if chance.random() < 0.8 else chance.integer() & ((1 << 64) - 1)
    return told.to_bytes(8, "little") + head + data[8 + length :]


def parsers() -> list[Parser]:
    """All of them."""
    hello = m.Hello(1, 1, "run", "replay", "actor/0/actor", 5, "host", _SCHEMA.encoded, b"body")
    header = m.Header(1, _SCHEMA.hash, 3, 1, 0, ((4, 2), ()), b"x")
    marks = msgspec.msgpack.encode([3, [[1, 2], [3, 4]]])
    return [
        _packed("hello", _prefixed(m.HELLO, m.decode_hello), hello),
        _packed("welcome", _prefixed(m.WELCOME, m.decode_welcome), m.Welcome(1, 2, 8, "socket", b"t" * 32, b"", b"x")),
        _packed("refusal", _prefixed(m.REFUSAL, m.decode_refusal), m.Refusal("no", True, b"x")),
        _packed("frame", _frame, header),
        Parser("release", lambda data: (m.decode_prefix(data), m.decode_release(data)), (BadMessage,), _releases),
        _packed("schema", _schema, msgspec.msgpack.decode(_SCHEMA.encoded), allowed=ValueError),
        _packed("marks", decode_acknowledgement, msgspec.msgpack.decode(marks)),
        _packed("want", replay.decode_table_request, replay.TableRequest("write", "replay")),
        _packed("state", replay.decode_table_state, replay.TableState(1, 2.0, "w", b"", 10, False, True)),
        _packed("version", parameters.decode_version, parameters.Version(1, 2)),
        _packed("terms", policy.decode_server_info, policy.ServerInfo(1, b"", 7)),
        Parser("cursor", lambda data: DeliveryLog(json.loads(data)), (UserError, ValueError, RecursionError),
               lambda chance: as_json(chance, {"actor/0": [[1, 2], [3, 4]]})),
        Parser("metrics line", _shown, (), lambda chance: as_json(chance, _LINE)),
        Parser("metrics response", _answered, (), _response),
        Parser("manifest", _manifest, (BadSet,), _hashed),
        _packed("replay snapshot", _snapshot, _SAVED, allowed=(UserError, BadSet)),
        Parser("checkpoint", checkpoints._arrays, (BadSet,), _checkpoint),
        Parser("status", status_of, (UserError,), lambda chance: as_json(chance, asdict(_STATUS))),
        Parser("curve", _curve, (), lambda chance: b"\n".join(as_json(chance, {"elapsed": 1.5, "steps": 3, "return": 2.0}) for _ in range(3))),
        _yaml("kubeconfig", _kubeconfig, _KUBECONFIG),
        _yaml("experiment", _experiment, (_EXAMPLES / "simulation/experiment.yaml").read_text()),
        _yaml("dijob", lambda data: convert(data, "job.yaml"), (_EXAMPLES / "dijob/job.yaml").read_text()),
    ]  # fmt: skip
