"""A log that is followed loses no line and repeats none, whatever its stream goes through on the way."""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from callsheet.backends.base import LogQuery
from callsheet.backends.kubernetes import names
from callsheet.backends.kubernetes.client import async_api
from callsheet.backends.kubernetes.client.api import Api
from callsheet.backends.kubernetes.client.errors import ApiError
from callsheet.backends.kubernetes.observe import follow as following
from callsheet.backends.kubernetes.observe.follow import LogDecoder, LogFollower, pause_after

POD: dict[str, Any] = {
    "metadata": {
        "name": "exp-actor-0",
        "uid": "1",
        "labels": {names.ROLE: "actor", "apps.kubernetes.io/pod-index": "0"},
    },
    "status": {"containerStatuses": [{"name": "actor", "state": {"running": {}}}]},
}
TOO_MANY = "failed to create fsnotify watcher: too many open files"
BREAK = None
"""The connection is cut."""
SILENCE = "silence"
"""Nothing comes any more, and the connection stays."""


def stamp(number: int) -> str:
    return f"2026-11-15T10:00:{number // 10:02}.{number % 10}00000000Z"


def stamped(*numbers: int) -> str:
    return "".join(f"{stamp(number)} step {number}\n" for number in numbers)


class Server(ThreadingHTTPServer):
    """An API server with one pod, whose log is answered for as the test says, one answer after the other."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[list[str | None]] = []
        self.asked: list[dict[str, str]] = []
        self.token = "first"
        self.phase = "Running"
        self.flood = False
        self.sent = 0
        self.over = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        url = urlsplit(self.path)  # a whole URL when we are asked as a proxy
        if self.headers["Authorization"] != f"Bearer {self.server.token}":
            return self.answer(401, {"message": "Unauthorized"})
        if not url.path.endswith("/log"):
            if not self.server.answers:
                self.server.phase = "Succeeded"
            return self.answer(200, POD | {"status": {"phase": self.server.phase}})
        self.server.asked.append({key: values[0] for key, values in parse_qs(url.query).items()})
        if not self.server.answers and not self.server.flood:
            return self.answer(404, {"message": "gone"})
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for text in self.flood() if self.server.flood else self.server.answers.pop(0):
            if text is BREAK:
                self.close_connection = True
                return self.connection.shutdown(2)
            if text is SILENCE:
                self.close_connection = True
                self.server.over.wait(60)
                return None
            self.chunk(text)
        return self.chunk("")

    def flood(self) -> Iterator[str]:
        while True:
            yield stamped(1) * 1000
            self.server.sent += 1

    def chunk(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def answer(self, code: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # the reader has gone
            super().handle()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(following, "_RETRY", 0.01)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with Server() as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.over.set()
        made.shutdown()


Connect = Callable[..., Api]


@pytest.fixture
def connect(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Connect:
    def api(url: str = "", token: Path | None = None) -> Api:
        path = tmp_path / "config"
        data = {
            "current-context": "one",
            "clusters": [{"name": "c", "cluster": {"server": url or server.url}}],
            "users": [{"name": "u", "user": {"tokenFile": str(token)} if token else {"token": "first"}}],
            "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u"}}],
        }
        path.write_text(yaml.safe_dump(data))
        monkeypatch.setenv("KUBECONFIG", str(path))
        return Api.connect()

    return api


def follow(api: Api, **query: Any) -> list[str]:
    """Every line, of a run that has ended when it is first looked at."""
    chunks = LogFollower(api, LogQuery(follow=True, **query), lambda: ([POD], True)).chunks()
    return [line.text for chunk in chunks for line in chunk.lines()]


def steps(*numbers: int) -> list[str]:
    return [f"step {number}" for number in numbers]


def test_lines_come_as_they_were_written(server: Server, connect: Connect) -> None:
    server.answers = [[stamped(1), stamped(2)[:20], stamped(2)[20:] + stamped(3, 4)]]
    assert follow(connect()) == steps(1, 2, 3, 4)
    assert server.asked == [{"container": "actor", "follow": "true", "timestamps": "true"}]


def test_a_stream_that_breaks_is_taken_up_after_the_last_whole_line(server: Server, connect: Connect) -> None:
    server.answers = [[stamped(1, 12), stamped(13)[:-3], BREAK], [stamped(10, 11, 12), stamped(13, 14)]]
    assert follow(connect()) == steps(1, 12, 13, 14)
    assert server.asked[1]["sinceTime"] == stamp(12)


def test_a_kubelet_that_cannot_go_on_is_asked_again_and_its_words_are_no_line(
    server: Server, connect: Connect
) -> None:
    server.answers = [[stamped(1), TOO_MANY], [stamped(1, 2), TOO_MANY], [TOO_MANY], [stamped(2, 3)]]
    assert follow(connect()) == steps(1, 2, 3)
    assert [asked.get("sinceTime") for asked in server.asked] == [None, stamp(1), stamp(2), stamp(2)]


def test_a_last_line_without_an_end_is_a_line(server: Server, connect: Connect) -> None:
    server.answers = [[stamped(1), stamped(2).rstrip()]]
    assert follow(connect()) == steps(1, 2)


def test_only_the_lines_that_are_asked_for(server: Server, connect: Connect) -> None:
    server.answers = [[stamped(1), BREAK], [stamped(1, 2)]]
    assert follow(connect(), tail=1) == steps(1, 2)
    assert [asked.get("tailLines") for asked in server.asked] == ["1", None]


def test_a_line_that_never_ends_is_handed_over_in_parts(server: Server, connect: Connect) -> None:
    server.answers = [[f"{stamp(1)} ", *["x" * 50_000] * 200, "y\n", stamped(2)]]
    *parts, end = follow(connect())
    assert (len(parts) > 1, "".join(parts), end) == (True, "x" * 10_000_000 + "y", "step 2")


def test_credentials_that_have_changed_are_read_again(
    server: Server, connect: Connect, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("first")
    api = connect(token=file)
    assert api.get("Pod", "exp-actor-0")
    file.write_text("second")
    server.token = "second"
    server.answers = [[stamped(1)]]
    server.phase = "Running"
    assert follow(api) == steps(1)


def test_credentials_that_are_not_accepted_are_told_so(server: Server, connect: Connect) -> None:
    server.token = "another"
    with pytest.raises(ApiError, match="did not accept your credentials"):
        follow(connect())


def test_a_proxy_is_asked_where_the_user_has_one(
    server: Server, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", server.url)
    server.answers = [[stamped(1), BREAK], [stamped(1, 2)]]
    assert follow(connect("http://cluster.invalid:6443")) == steps(1, 2)


def test_a_log_that_is_silent_behind_a_proxy_is_asked_for_anew_and_no_line_is_lost_or_double(
    server: Server, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", server.url)
    monkeypatch.setattr(async_api, "LOG_SILENCE", 0.3)
    server.answers = [[stamped(1, 2), SILENCE], [stamped(2), SILENCE], [stamped(2, 3)]]
    assert follow(connect("http://cluster.invalid:6443")) == steps(1, 2, 3)
    assert [asked.get("sinceTime") for asked in server.asked] == [None, stamp(2), stamp(2)]


def test_a_log_that_was_silent_from_the_start_is_asked_for_from_there_on(
    server: Server, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the new lines were asked for: those that come between two connections are new too."""
    monkeypatch.setenv("HTTP_PROXY", server.url)
    monkeypatch.setattr(async_api, "LOG_SILENCE", 0.3)
    server.answers = [[SILENCE], [SILENCE], [stamped(1)]]
    assert follow(connect("http://cluster.invalid:6443"), tail=0) == steps(1)
    first, *others = server.asked
    assert first["tailLines"] == "0"
    assert [("tailLines" in asked, int(asked["sinceSeconds"]) >= 1) for asked in others] == [
        (False, True)
    ] * 2


def test_a_slow_reader_holds_the_stream_back_and_one_that_leaves_ends_it(
    server: Server, connect: Connect
) -> None:
    server.flood = True
    before = threading.active_count()
    chunks = LogFollower(connect(), LogQuery(follow=True), lambda: ([POD], False)).chunks()
    next(chunks)
    sent = -1
    while sent != server.sent:  # until nothing moves any more
        sent = server.sent
        threading.Event().wait(0.3)
    assert sent * len(stamped(1)) * 1000 < 100 << 20
    chunks.close()
    server.shutdown()
    server.server_close()
    limit = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < limit:
        gc.collect()
        threading.Event().wait(0.01)
    assert threading.active_count() <= before, threading.enumerate()


def test_looks_are_a_small_part_of_the_work_and_one_that_hung_does_not_put_off_the_next() -> None:
    assert [pause_after(took) for took in (0.01, 0.5, 12.0)] == [1.0, 2.5, 5.0]


def cuts(text: bytes) -> st.SearchStrategy[list[bytes]]:
    """The text in chunks of any size."""
    places = st.lists(st.integers(0, len(text)), max_size=12).map(
        lambda found: [0, *sorted(found), len(text)]
    )
    return places.map(lambda at: [text[a:b] for a, b in itertools.pairwise(at) if a != b])


LOG = (
    stamped(1, 2).encode() + b"2026-11-15T12:00:01.5+02:00 2026-11-15T10:00:00Z said\n" + stamped(16).encode()
)


@given(cuts(LOG))
def test_stamps_are_taken_off_wherever_the_stream_was_cut(chunks: list[bytes]) -> None:
    stamps = LogDecoder()
    stamps.restart()
    lines = b"".join([*(stamps.feed(chunk) for chunk in chunks), stamps.flush()])
    assert lines == b"step 1\nstep 2\n2026-11-15T10:00:00Z said\nstep 16\n"
    assert stamps.last == stamp(16).encode()


def test_moments_are_compared_across_time_zones() -> None:
    stamps = LogDecoder()
    stamps.restart()
    stamps.feed(b"2026-11-15T12:00:01.5+02:00 half past\n")
    stamps.restart()
    assert (
        stamps.feed(b"2026-11-15T10:00:01.500000000Z half past\n2026-11-15T10:00:01.500000001Z later\n")
        == b"later\n"
    )
