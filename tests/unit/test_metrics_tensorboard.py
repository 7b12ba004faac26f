"""TensorBoard itself reads the event files that we write by hand."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from callsheet.metrics import Registry
from callsheet.metrics.json_lines import LineMaker
from callsheet.metrics.targets import ExportTargets, Identity
from callsheet.metrics.tensorboard import HEAD, EventFile, EventWriter, crc32c, record
from callsheet.metrics.writers import EVENTS_EVERY, Snapshot, local_writers, remote_writers

# TensorBoard warns about itself on import, and warnings are errors here: it reads in a process of its own.
READ = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
read = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "histograms": 0, "tensors": 0})
read.Reload()
tags = read.Tags()
print(json.dumps({
    "scalars": {tag: [(e.step, e.value, e.wall_time) for e in read.Scalars(tag)] for tag in tags["scalars"]},
    "histograms": {tag: [(e.step, e.histogram_value.num, e.histogram_value.sum, list(e.histogram_value.bucket_limit),
        list(e.histogram_value.bucket)) for e in read.Histograms(tag)] for tag in tags["histograms"]},
}))
"""


def read_back(folder: Path) -> dict[str, dict[str, list]]:
    done = subprocess.run(
        [sys.executable, "-c", READ, str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_scalars_and_histograms_are_read_back(tmp_path: Path) -> None:
    registry = Registry()
    wait = registry.histogram("wait", "Waiting.", unit="seconds", buckets=(1, 2, 4))
    for value in (1.5, 1.5, 3.0, 9.0):
        wait.observe(value)
    events = EventWriter.in_folder(str(tmp_path))
    events.write(7, {"loss": 0.25, "steps": 10**12}, wall_time=1000.5)
    events.write(2**40, {"loss": -1e300, "wait": wait.value}, wall_time=1001.5)
    events.close()
    found = read_back(tmp_path)
    assert found["scalars"]["loss"][0] == [7, 0.25, 1000.5]
    assert found["scalars"]["loss"][1][0] == 2**40
    assert found["scalars"]["loss"][1][1] == pytest.approx(-3.4e38, rel=0.01), "single precision has an end"
    assert found["scalars"]["steps"][0][1] == pytest.approx(1e12)
    ((step, count, total, limits, buckets),) = found["histograms"]["wait"]
    assert (step, count, total) == (2**40, 4, 15.0)
    assert limits[:3] == [1, 2, 4]
    assert buckets == [0, 2, 1, 1]


def test_a_registry_becomes_events_now_and_then(tmp_path: Path) -> None:
    registry = Registry()
    updates = registry.counter("learning_updates", "Updates.")
    registry.gauge("learning_loss", "Loss.").set(0.5)
    lag = registry.histogram("policy_lag", "Lag.")
    who = Identity(role="learner", container="learner")
    writers = local_writers(ExportTargets(who, folder=str(tmp_path)), tensorboard=True, step=updates)
    maker = LineMaker(who, 5.0)
    for beat in range(int(EVENTS_EVERY / 5) + 1):
        updates.add(10)
        lag.observe(beat)
        readings = registry.snapshot()
        made = maker.make(readings, now=1000.0 + 5 * beat, clock=5.0 * beat)
        for writer in writers:
            writer.take(Snapshot(readings, made, 5.0 * beat, last=False))
    for writer in writers:
        writer.close()
    found = read_back(tmp_path / "tensorboard" / "learner-0")
    assert [event[:2] for event in found["scalars"]["learning/loss"]] == [[10, 0.5], [70, 0.5]]
    assert [event[:2] for event in found["scalars"]["learning/updates_per_second"]] == [[70, 2.0]]
    assert [event[1] for event in found["histograms"]["policy/lag"]] == [1, 6], "each tells what is new"


class Bucket(dict[str, bytes]):
    def put(self, key: str, data: bytes) -> None:
        self[key] = data


def test_parts_in_a_remote_store_are_whole_event_files(tmp_path: Path) -> None:
    bucket = Bucket()
    registry = Registry()
    loss = registry.gauge("loss", "Loss.")
    who = Identity(role="learner", container="learner")
    writers, parts = remote_writers(
        ExportTargets(who, remote="s3://b/x"), bucket, tensorboard=True, step=None
    )
    parts[1]._limit = 300
    maker = LineMaker(who, 5.0)
    for beat in range(10):
        loss.set(beat)
        clock = EVENTS_EVERY * beat
        made = maker.make(registry.snapshot(), now=1000 + clock, clock=clock)
        for writer in writers:
            writer.take(Snapshot(registry.snapshot(), made, clock, last=False))
    for part in parts:
        part.upload()
    events = {key: data for key, data in bucket.items() if key.startswith("tensorboard/learner-0/")}
    lines = [key for key in bucket if key.startswith("metrics/learner/0/learner.")]
    assert len(events) > 1
    assert len(lines) == 1
    for key, data in events.items():
        (tmp_path / key.rpartition("/")[2]).write_bytes(data)
    assert [event[1] for event in read_back(tmp_path)["scalars"]["loss"]] == list(range(10))


def test_a_record_that_was_cut_off_costs_itself_alone(tmp_path: Path) -> None:
    file = EventFile(str(tmp_path))
    events = EventWriter(file)
    events.write(1, {"loss": 1.0})
    events.write(2, {"loss": 2.0})
    events.close()
    path = Path(file.path)
    path.write_bytes(path.read_bytes()[:-5])
    assert [event[:2] for event in read_back(tmp_path)["scalars"]["loss"]] == [[1, 1.0]]


def test_an_event_file_has_a_limit(tmp_path: Path) -> None:
    file = EventFile(str(tmp_path), limit=200)
    events = EventWriter(file)
    events.write(1, {"loss": 1.0})
    with pytest.raises(OSError, match="limit of 200 bytes"):
        events.write(2, {f"loss{n}": 2.0 for n in range(20)})
    events.close()
    assert [event[:2] for event in read_back(tmp_path)["scalars"]["loss"]] == [[1, 1.0]]


def test_the_checksum_is_castagnolis() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"") == 0
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"123456789") != zlib.crc32(b"123456789")
    (length,) = struct.unpack_from("<Q", HEAD)
    assert len(HEAD) == 8 + 4 + length + 4 == len(record(HEAD[12:-4]))
