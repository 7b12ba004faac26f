"""Lines on disk are whole lines, bounded, and read back whatever happened to their writer."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from callsheet.metrics import Registry
from callsheet.metrics.files import FILES, Parts, RotatingFile
from callsheet.metrics.json_lines import LineMaker
from callsheet.metrics.reader import (
    FolderReader,
    ShownMetric,
    from_response,
    is_complete,
    read_newest,
    shown_by_role,
)
from callsheet.metrics.targets import ExportTargets, Identity
from callsheet.metrics.writers import Snapshot, local_writers

WHO = Identity("cartpole", "wrj7fnb7", "actor", 3, "actor")


def line(number: int, **more) -> bytes:
    data = {
        "role": "actor",
        "index": 0,
        "container": "actor",
        "time": 100.0 + number,
        "interval": 5.0,
        "last": False,
        "metrics": {"steps": number},
        "rates": {},
        "recent": {},
        "shown": [],
    }
    return json.dumps(data | more).encode() + b"\n"


def place(folder: Path, role: str = "actor", index: int = 0, name: str = "actor.jsonl") -> Path:
    path = folder / "metrics" / role / str(index) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def test_a_file_is_rotated_and_bounded(tmp_path: Path) -> None:
    file = RotatingFile(str(tmp_path), "actor", limit=1000, files=3)
    for number in range(100):
        file.write(b"%099d\n" % number)
    file.close()
    assert sorted(os.listdir(tmp_path)) == ["actor.jsonl", "actor.jsonl.1", "actor.jsonl.2"]
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert max(sizes) <= 1000
    kept = [
        int(n) for name in (".2", ".1", "") for n in (tmp_path / f"actor.jsonl{name}").read_text().split()
    ]
    assert kept == list(range(70, 100))


def test_two_processes_of_a_container_write_beside_each_other(tmp_path: Path) -> None:
    first, second = (RotatingFile(str(tmp_path), "actor") for _ in range(2))
    first.write(b"1\n")
    second.write(b"2\n")
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {
        "actor.jsonl": "1\n",
        "actor.2.jsonl": "2\n",
    }
    first.close()
    third = RotatingFile(str(tmp_path), "actor")
    third.write(b"3\n")
    assert (tmp_path / "actor.jsonl").read_text() == "1\n3\n", "a place that became free is taken again"
    second.close()
    third.close()


def test_a_torn_line_is_cut_off_by_the_next_writer(tmp_path: Path) -> None:
    (tmp_path / "actor.jsonl").write_bytes(b"whole\n" + b"torn" * 50_000)
    file = RotatingFile(str(tmp_path), "actor")
    file.write(b"next\n")
    file.close()
    assert (tmp_path / "actor.jsonl").read_bytes() == b"whole\nnext\n"


def test_a_file_that_somebody_removed_is_made_again(tmp_path: Path) -> None:
    file = RotatingFile(str(tmp_path / "actor"), "actor")
    file.write(b"1\n")
    shutil.rmtree(tmp_path / "actor")
    file.write(b"2\n")
    file.close()
    assert (tmp_path / "actor" / "actor.jsonl").read_text() == "2\n"


@pytest.mark.parametrize("torn", [b"", b'{"role": "actor", "ind', b"\0\0\0", b'{"role": 1}'])
def test_the_newest_whole_line_is_read(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "actor.jsonl"
    path.write_bytes(line(1) + line(2) + torn)
    found = read_newest(str(path))
    assert found is not None
    assert found.metrics == {"steps": 2}


def test_a_line_longer_than_the_usual_tail_is_read(tmp_path: Path) -> None:
    path = tmp_path / "actor.jsonl"
    many = {f"metric_{number}": number for number in range(20_000)}
    path.write_bytes(line(1) * 10 + line(2, metrics=many))
    assert path.stat().st_size > 300_000
    found = read_newest(str(path))
    assert found is not None
    assert found.metrics == many


def test_nothing_readable_is_nothing(tmp_path: Path) -> None:
    assert read_newest(str(tmp_path / "none.jsonl")) is None
    (tmp_path / "bad.jsonl").write_bytes(b"\xff\n" * 100_000)
    assert read_newest(str(tmp_path / "bad.jsonl")) is None
    assert FolderReader(tmp_path).read() == []


def test_a_reader_opens_a_file_again_only_when_it_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = place(tmp_path), place(tmp_path, index=1)
    one.write_bytes(line(1))
    two.write_bytes(line(1, index=1))
    opened: list[str] = []
    monkeypatch.setattr(
        "callsheet.metrics.reader.read_newest",
        lambda path, read=read_newest: opened.append(path) or read(path),
    )
    reader = FolderReader(tmp_path)
    assert [process.name for process in reader.read()] == ["actor/0", "actor/1"]
    with two.open("ab") as file:
        file.write(line(2, index=1))
    assert [process.metrics["steps"] for process in reader.read()] == [1, 2]
    assert opened == [str(one), str(two), str(two)] or opened == [str(two), str(one), str(two)]


def test_a_file_that_was_just_rotated_shows_the_part_before(tmp_path: Path) -> None:
    place(tmp_path).write_bytes(b"")
    place(tmp_path, name="actor.jsonl.1").write_bytes(line(7))
    assert [process.metrics["steps"] for process in FolderReader(tmp_path).read()] == [7]


def test_an_answer_is_whole_when_its_length_says_so() -> None:
    body = line(3)
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    assert [
        is_complete(answer[:end]) for end in (5, len(answer) - len(body), len(answer) - 1, len(answer))
    ] == [
        False,
        False,
        False,
        True,
    ]
    found = from_response(answer)
    assert found is not None
    assert found.metrics == {"steps": 3}
    assert from_response(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\n{}") is None
    assert not is_complete(b"SSH-2.0-OpenSSH\r\n\r\n")


def test_rates_and_recent_quantiles_stand_in_the_line() -> None:
    registry = Registry()
    steps = registry.counter("steps", "Steps.", shown=True)
    lag = registry.histogram("lag", "Lag.", shown=True)
    maker = LineMaker(WHO, 5.0)
    maker.make(registry.snapshot(), now=1000.0, clock=0.0)
    steps.add(100)
    lag.observe(1, 10)
    first = maker.make(registry.snapshot(), now=1005.0, clock=5.0)
    assert first["rates"] == {"steps": 20.0}
    assert first["metrics"]["lag"] == {"count": 10, "sum": 10.0, "buckets": {"1": 10}}
    steps.add(10)
    lag.observe(8, 10)
    second = maker.make(registry.snapshot(), now=1010.0, clock=10.0)
    assert second["rates"] == {"steps": 2.0}
    assert 4 < second["recent"]["lag"]["p50"] <= 8, "of the last interval alone"
    quiet = maker.make(registry.snapshot(), now=1015.0, clock=15.0)
    assert quiet["recent"] == {}
    assert [item["name"] for item in quiet["shown"]] == ["steps"]


def test_a_counter_that_could_not_be_read_once_does_not_seem_to_jump() -> None:
    registry = Registry()
    values: list[int] = [1000, 1010]
    registry.counter("steps", "Steps.").follow(lambda: values.pop(0))
    maker = LineMaker(WHO, 5.0)
    maker.make(registry.snapshot(), now=1000.0, clock=0.0)
    maker.make(registry.snapshot(), now=1005.0, clock=5.0)
    failed = maker.make(registry.snapshot(), now=1010.0, clock=10.0)
    assert "steps" not in failed["metrics"]
    values.append(1030)
    after = maker.make(registry.snapshot(), now=1015.0, clock=15.0)
    assert after["rates"]["steps"] == pytest.approx(4.0), "since it was read last"


def test_a_last_line_just_after_another_still_tells_a_rate_over_a_whole_interval() -> None:
    registry = Registry()
    steps = registry.counter("steps", "Steps.")
    maker = LineMaker(WHO, 5.0)
    maker.make(registry.snapshot(), now=1000.0, clock=0.0)
    steps.add(50)
    maker.make(registry.snapshot(), now=1005.0, clock=5.0)
    steps.add(1)
    last = maker.make(registry.snapshot(), now=1005.01, clock=5.01, last=True)
    assert last["rates"]["steps"] == pytest.approx(51 / 5.01, rel=1e-4)
    assert last["last"] is True


def test_a_line_is_json_whatever_the_numbers_are() -> None:
    registry = Registry()
    registry.gauge("loss", "Loss.", shown=True).set(float("nan"))
    registry.gauges("at", "Levels.", ("where",)).of(where='"x"\n').set(float("inf"))
    made = LineMaker(WHO, 5.0).make(registry.snapshot(), now=1.0, clock=0.0)
    read = json.loads(json.dumps(made, allow_nan=False))
    assert read["metrics"] == {"loss": None, 'at{where="\\"x\\"\\n"}': None}
    assert read["shown"] == []


def test_several_processes_become_one_number_for_their_role(tmp_path: Path) -> None:
    for index in range(2):
        registry = Registry()
        maker = LineMaker(Identity(role="actor", index=index, container="actor"), 5.0)
        steps = registry.counter("steps", "Steps.", shown=True)
        wait = registry.counters("wait", "Waiting.", ("on",), unit="seconds", shown="waiting")
        registry.gauge("return", "Return.", shown=True).set(100 + 100 * index)
        registry.gauge("held", "Items.", shown=True, adds_up=True).set(5)
        for on in ("learner", "replay"):
            wait.of(on=on)
        maker.make(registry.snapshot(), now=1000.0, clock=0.0)
        steps.add(500)
        wait.of(on="learner").add(1.0)
        wait.of(on="replay").add(0.5)
        made = maker.make(registry.snapshot(), now=1005.0, clock=5.0)
        place(tmp_path, index=index).write_text(json.dumps(made) + "\n")
    expected = [
        ShownMetric("steps", 200.0, "/s"),
        ShownMetric("return", 150.0),
        ShownMetric("held", 10.0),
        ShownMetric("waiting", 0.3, "share"),
    ]
    read = FolderReader(tmp_path).read()
    assert shown_by_role(read, ended=False, now=1006.0) == {"actor": expected}
    assert shown_by_role(read, ended=False, now=1100.0) == {}, (
        "what is old says nothing of a run that goes on"
    )
    assert shown_by_role(read, ended=True, now=1100.0) == {"actor": expected}


class Bucket:
    """A remote store that may be out of order."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.broken = False

    def put(self, key: str, data: bytes) -> None:
        if self.broken:
            raise OSError("no answer")
        self.objects[key] = data


def test_parts_reach_a_store_that_cannot_append() -> None:
    bucket = Bucket()
    parts = Parts(bucket, lambda number: f"part-{number}", head=b"#", limit=10)
    parts.upload()
    assert bucket.objects == {}, "nothing but a head is nothing"
    parts.write(b"aaaa")
    parts.upload()
    parts.write(b"bbbb")
    parts.upload()
    assert bucket.objects == {"part-0": b"#aaaabbbb"}
    parts.write(b"cccc")
    parts.write(b"dddd")
    parts.upload()
    assert bucket.objects == {"part-0": b"#aaaabbbb", "part-1": b"#ccccdddd"}


def test_a_store_that_does_not_answer_loses_nothing_for_a_while_and_then_the_oldest() -> None:
    bucket = Bucket()
    bucket.broken = True
    parts = Parts(bucket, lambda number: f"part-{number}", limit=4)
    for number in range(3):
        parts.write(b"%04d" % number)
        with pytest.raises(OSError, match="no answer"):
            parts.upload()
    bucket.broken = False
    parts.upload()
    assert bucket.objects == {"part-0": b"0000", "part-1": b"0001", "part-2": b"0002"}
    bucket.broken = True
    for number in range(3, 3 + FILES + 2):
        parts.write(b"%04d" % number)
    assert parts.dropped == 4 * 1
    bucket.broken = False
    parts.upload()
    assert set(bucket.objects) == {f"part-{number}" for number in range(3 + FILES + 2) if number != 3}


def test_where_metrics_go_is_read_from_the_contract() -> None:
    env = {
        "CALLSHEET_EXPERIMENT": "cartpole",
        "CALLSHEET_RUN": "wrj7fnb7",
        "CALLSHEET_ROLE": "sim",
        "CALLSHEET_INDEX": "2",
        "CALLSHEET_CONTAINER": "policy",
        "CALLSHEET_ATTEMPT": "1",
        "CALLSHEET_STORAGE": "file:///results/with%20space/cartpole/wrj7fnb7",
        "CALLSHEET_SIM_METRICS_BIND": "127.1.0.3:9100",
        "CALLSHEET_OTHER_METRICS_ADDR": "127.1.0.4:9100",
    }
    found = ExportTargets.from_env(env)
    assert found == ExportTargets(
        Identity("cartpole", "wrj7fnb7", "sim", 2, "policy", 1),
        address="127.1.0.3:9100",
        folder="/results/with space/cartpole/wrj7fnb7",
    )
    assert found.identity.name == "sim-2-policy"
    assert ExportTargets.from_env(env | {"CALLSHEET_METRICS_BIND": "127.1.0.3:9"}).address == "127.1.0.3:9"
    assert ExportTargets.from_env({"CALLSHEET_STORAGE": "s3://b/x"}).remote == "s3://b/x"
    assert ExportTargets.from_env({}) == ExportTargets(), "outside an experiment nothing is exported"


def test_local_writers_use_the_layout_of_the_results(tmp_path: Path) -> None:
    registry = Registry()
    made = LineMaker(WHO, 5.0).make(registry.snapshot(), now=1.0, clock=0.0)
    for writer in local_writers(ExportTargets(WHO, folder=str(tmp_path)), tensorboard=True, step=None):
        writer.take(Snapshot([], made, 0.0, last=False))
        writer.close()
    found = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert found[0] == "metrics/actor/3/actor.jsonl"
    assert found[1].startswith("tensorboard/actor-3/events.out.tfevents.")
