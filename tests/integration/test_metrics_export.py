"""A real process exports its metrics: scraped, written, and whole to the last line however it ends."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from local_runs import eventually, program
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from callsheet.metrics.reader import read_newest

Start = Callable[..., subprocess.Popen[str]]
LINES = "metrics/actor/0/actor.jsonl"


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    """Starts the counting program as replica actor/0 of a run; it is surely over when the test is."""
    started: list[subprocess.Popen[str]] = []

    def begin(*words: str, **env: str) -> subprocess.Popen[str]:
        contract = {
            "CALLSHEET_EXPERIMENT": "exp",
            "CALLSHEET_RUN": "wrj7fnb7",
            "CALLSHEET_ROLE": "actor",
            "CALLSHEET_CONTAINER": "actor",
            "CALLSHEET_INDEX": "0",
            "CALLSHEET_STORAGE": folder.as_uri(),
            "CALLSHEET_METRICS_BIND": "127.0.0.1:0",
        }
        started.append(
            subprocess.Popen(
                program("exports.py", *words),
                env=os.environ | contract | env,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def address(process: subprocess.Popen[str]) -> str:
    """Where it serves; it counts by then."""
    assert process.stdout is not None
    word, where = process.stdout.readline().split()
    assert word == "counting"
    return where


def get(where: str, path: str = "/metrics", accept: str = "", method: str = "GET") -> tuple[str, str]:
    request = urllib.request.Request(f"http://{where}{path}", method=method)
    if accept:
        request.add_header("Accept", accept)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def samples(text: str, parse=parse_text) -> dict[str, float]:
    found = [s for family in parse(text) for s in family.samples]
    return {s.name if not s.labels else f"{s.name}{s.labels}": s.value for s in found}


def lines(folder: Path) -> list[dict]:
    """Every line as JSON: one that is not whole fails."""
    return [json.loads(line) for line in (folder / LINES).read_text().splitlines()]


def size(folder: Path) -> int:
    return (folder / LINES).stat().st_size if (folder / LINES).exists() else 0


def test_prometheus_scrapes_a_process(start: Start) -> None:
    where = address(start())
    eventually(lambda: samples(get(where)[1])["callsheet_steps_total"] > 0)
    kind, text = get(where)
    assert kind == "text/plain; version=0.0.4; charset=utf-8"
    found = samples(text)
    assert found["callsheet_spread_count"] > 0
    assert found["callsheet_process_resident_bytes"] > 1_000_000
    assert found["callsheet_process_open_files"] > 3
    assert found["callsheet_process_cpu_seconds_total"] > 0
    eventually(lambda: samples(get(where)[1])["callsheet_steps_total"] > found["callsheet_steps_total"])


def test_the_accept_header_chooses_the_format(start: Start) -> None:
    where = address(start())
    usual = (
        "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4"
    )
    kind, text = get(where, accept=f"{usual},text/plain;version=0.0.4;q=0.3,*/*;q=0.2")
    assert kind == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert samples(text, parse_openmetrics)["callsheet_steps_total"] > 0
    for other in ("*/*", "text/html", "text/plain", "text/plain;q=1,application/openmetrics-text;q=0.1"):
        assert get(where, accept=other)[0].startswith("text/plain; version=0.0.4")
    kind, text = get(where, accept="application/json")
    assert kind == "application/json"
    assert {"steps", "spread", "level"} <= set(json.loads(text)["metrics"])


def test_nothing_else_is_served(start: Start) -> None:
    where = address(start())
    assert get(where, "/healthz") == ("text/plain; charset=utf-8", "ok\n")
    assert get(where, "/metrics?x=1")[1].startswith("# HELP")
    for path, method, code in (("/", "GET", 404), ("/metrics/x", "GET", 404), ("/metrics", "POST", 405)):
        with pytest.raises(urllib.error.HTTPError) as error:
            get(where, path, method=method)
        error.value.close()
        assert error.value.code == code
    host, _, port = where.rpartition(":")
    for junk in (b"\r\n\r\n", b"GET /metrics\r\n\r\n", os.urandom(200) + b"\r\n\r\n"):
        with socket.create_connection((host, int(port)), timeout=10) as raw:
            raw.sendall(junk)
            assert raw.recv(100).startswith(b"HTTP/1.1 400 ")
    assert samples(get(where)[1])["callsheet_steps_total"] > 0


def test_connections_are_bounded_and_a_silent_one_is_dropped(start: Start) -> None:
    where = address(start("idle"))
    host, _, port = where.rpartition(":")
    with ExitStack() as held:
        silent = [held.enter_context(socket.create_connection((host, int(port)))) for _ in range(8)]
        for connection in silent:
            connection.sendall(b"GET /metrics HTTP/1.1\r\n")  # and never ends the request
        with pytest.raises(urllib.error.HTTPError, match="503"):
            eventually(lambda: not get(where))
        # Nobody closes them here: they are dropped in their time, and scraping works again.
        eventually(lambda: _answers(where), within=15)
        for connection in silent:
            connection.settimeout(10)
            assert connection.recv(1) == b""


def _answers(where: str) -> bool:
    try:
        return bool(get(where))
    except urllib.error.HTTPError as error:
        error.close()
        return False


def test_a_thousand_scrapes_while_counting_cost_no_error_and_no_growth(start: Start) -> None:
    process = start("idle")
    where = address(process)

    def state() -> tuple[float, float, float]:
        found = samples(get(where)[1])
        return tuple(found[f"callsheet_process_{n}"] for n in ("resident_bytes", "open_files", "threads"))

    for _ in range(100):
        get(where)
    before = state()
    steps = 0.0
    for number in range(1000):
        accept = ("", "application/openmetrics-text", "application/json")[number % 3]
        text = get(where, accept=accept)[1]
        if not accept:
            now = samples(text)["callsheet_steps_total"]
            assert now >= steps
            steps = now
    after = state()
    eventually(lambda: samples(get(where)[1])["callsheet_steps_total"] > 100_000)
    assert after[0] - before[0] < 2_000_000
    assert after[1] - before[1] <= 1, "descriptors: a connection may be about to close"
    assert after[2] - before[2] <= 1
    assert process.poll() is None


def test_sigterm_writes_the_last_line_and_ends_as_it_would_have(start: Start, folder: Path) -> None:
    process = start(INTERVAL="60")
    where = address(process)
    counted = samples(get(where)[1])["callsheet_steps_total"]
    process.terminate()
    assert process.wait(10) == -signal.SIGTERM
    last = lines(folder)[-1]
    assert last["last"] is True
    assert last["metrics"]["steps"] >= counted


def test_a_program_that_handles_sigterm_keeps_its_handler_and_its_last_line(
    start: Start, folder: Path
) -> None:
    process = start("handles", INTERVAL="60")
    address(process)
    process.terminate()
    assert process.wait(10) == 0
    assert lines(folder)[-1]["last"] is True


def test_an_end_by_itself_writes_the_exact_last_numbers(start: Start, folder: Path) -> None:
    process = start(SECONDS="0.5")
    address(process)
    output, errors = process.communicate(timeout=20)
    assert (process.returncode, errors) == (0, "")
    last = lines(folder)[-1]
    assert last["metrics"]["steps"] == int(output.split()[-1]) == last["metrics"]["spread"]["count"]
    assert [item["name"] for item in last["shown"]] == ["steps", "spread", "level"]
    assert last["rates"]["steps"] > 0
    assert [line["line"] for line in lines(folder)] == list(range(1, len(lines(folder)) + 1))


def test_kill_minus_nine_leaves_only_whole_lines(start: Start, folder: Path) -> None:
    chance = random.Random(5)
    for _ in range(8):
        process = start("idle", INTERVAL="0.001")
        address(process)
        wanted = size(folder) + chance.randrange(1, 50_000)
        eventually(lambda wanted=wanted: size(folder) > wanted)
        process.kill()
        process.wait()
        found = read_newest(str(folder / LINES))
        assert found is not None
        assert found.metrics["steps"] >= 0
    # What the last kill may have torn is cut off by the next writer: all that is there is whole.
    process = start(SECONDS="0")
    assert process.wait(20) == 0
    assert len(lines(folder)) > 8


def test_a_disk_that_takes_no_more_is_counted_and_costs_the_program_nothing(
    start: Start, folder: Path
) -> None:
    def limited(*words: str, **env: str) -> subprocess.Popen[str]:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
        try:
            return start(*words, **env)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    process = limited(INTERVAL="0.005")
    where = address(process)
    lost = "callsheet_metrics_lost_total{'by': 'lines'}"
    eventually(lambda: samples(get(where)[1]).get(lost, 0) > 5)
    process.terminate()
    _, errors = process.communicate(timeout=20)
    assert process.returncode == -signal.SIGTERM
    assert errors.count("metrics are lost (lines): ") == 1
    assert "File too large" in errors
    assert len(lines(folder)) > 3, "and what is there is whole"


def test_a_forked_child_writes_beside_its_parent_and_leaves_the_parents_port_alone(
    start: Start, folder: Path
) -> None:
    process = start("forks", SECONDS="6")
    where = address(process)
    eventually((folder / "metrics/actor/0/actor.2.jsonl").exists)
    assert samples(get(where)[1])["callsheet_steps_total"] != 1_000_000
    output, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    ends = [read_newest(str(path)) for path in folder.glob("metrics/actor/0/*.jsonl")]
    assert {end.metrics["steps"] for end in ends if end} == {1_000_000, int(output.split()[-1])}


def test_a_port_that_is_taken_is_said_and_counted(start: Start, folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bind = f"127.0.0.1:{taken.getsockname()[1]}"
        process = start(CALLSHEET_METRICS_BIND=bind, SECONDS="0.3")
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 0
    assert f"metrics are lost (port): cannot serve metrics on {bind}: Address already in use" in errors
    assert lines(folder)[-1]["metrics"]['metrics_lost{by="port"}'] == 1


def test_a_program_that_was_stopped_for_a_while_does_not_catch_up(start: Start, folder: Path) -> None:
    process = start("idle", INTERVAL="0.05")
    address(process)
    eventually(lambda: size(folder) > 0)
    process.send_signal(signal.SIGSTOP)
    stopped = time.monotonic()
    eventually(lambda: time.monotonic() > stopped + 1.5)
    before = size(folder)
    process.send_signal(signal.SIGCONT)
    eventually(lambda: size(folder) > before)
    process.terminate()
    process.wait()
    times = [line["time"] for line in lines(folder)]
    gap = max(range(1, len(times)), key=lambda place: times[place] - times[place - 1])
    assert times[gap] - times[gap - 1] > 1.0
    assert sum(moment < times[gap] + 0.04 for moment in times[gap:]) <= 3
