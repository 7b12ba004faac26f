"""The client of the API server before a server that does what real ones do: pages, watches that end, streams, TLS, proxies."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from aiohttp import web

from callsheet.backends.kubernetes.client import async_api
from callsheet.backends.kubernetes.client.api import Api
from callsheet.backends.kubernetes.client.async_api import Change, Snapshot
from callsheet.backends.kubernetes.client.errors import ApiError, Unreachable
from callsheet.backends.kubernetes.client.exec import exec_in_pod
from callsheet.backends.kubernetes.client.port_forward import Forward, query_port
from callsheet.errors import UserError
from callsheet.event_loop import LoopThread

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
POD = {"metadata": {"name": "exp-actor-0"}, "spec": {"containers": [{"name": "actor"}]}}


class Pki:
    """Certificates of one authority."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.file = self._make(name)[0]

    def _make(self, name: str, *words: str) -> tuple[Path, Path]:
        certificate, key = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-subj", f"/CN={name}"]
        command = ["openssl", "req", "-x509", *new, "-keyout", key, "-out", certificate, *words]
        subprocess.run(command, check=True, capture_output=True)
        return certificate, key

    def issue(self, name: str, alternative: str) -> tuple[Path, Path]:
        signed = ["-CA", str(self.file), "-CAkey", str(self.file.with_suffix(".key"))]
        return self._make(f"{self.name}-{name}", *signed, "-addext", f"subjectAltName={alternative}")

    def server(self, alternative: str) -> ssl.SSLContext:
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.load_cert_chain(*self.issue("server", alternative))
        made.load_verify_locations(self.file)
        made.verify_mode = ssl.CERT_OPTIONAL
        return made


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki(tmp_path_factory.mktemp("pki"), "cluster")


class Server:
    """Answers every request as the test says."""

    def __init__(self, answer: Answer, tls: ssl.SSLContext | None) -> None:
        self.asked: list[dict[str, str]] = []
        self._answer, self._tls = answer, tls
        self._loop = LoopThread("test-server", self._stop)
        self.port = self._loop.run(self._start())
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"

    async def _start(self) -> int:
        app = web.Application(client_max_size=1 << 24)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls).start()
        return int(self._runner.addresses[0][1])

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(dict(request.query))
        return await self._answer(request)

    async def _stop(self) -> None:
        await self._runner.cleanup()

    def close(self) -> None:
        self._loop.close()


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    made: list[Server] = []

    def start(answer: Answer, tls: ssl.SSLContext | None = None) -> Server:
        made.append(Server(answer, tls))
        return made[-1]

    yield start
    for one in made:
        one.close()


@pytest.fixture
def connect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Api]:
    monkeypatch.setattr(async_api, "_RETRY", 0.01)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)

    def api(server: str, user: dict[str, Any] | None = None, **cluster: Any) -> Api:
        data = {
            "current-context": "one",
            "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
            "users": [{"name": "u", "user": user or {"token": "t"}}],
            "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u"}}],
        }
        (tmp_path / "config").write_text(yaml.safe_dump(data))
        return Api.connect()

    return api


def pods(*names: str, version: str = "1", resume: str = "") -> web.Response:
    items = [{"metadata": {"name": name}} for name in names]
    return web.json_response(
        {"metadata": {"resourceVersion": version, "continue": resume}, "items": items or None}
    )


def names_of(items: list[Any]) -> list[str]:
    return [item["metadata"]["name"] for item in items]


def error(code: int, message: str) -> web.Response:
    return web.json_response({"kind": "Status", "code": code, "message": message}, status=code)


def test_a_list_comes_in_pages(serve: Callable[..., Server], connect: Callable[..., Api]) -> None:
    async def answer(request: web.Request) -> web.Response:
        assert request.path == "/k8s/c1/api/v1/namespaces/default/pods"
        return pods("b") if "continue" in request.query else pods("a", resume="next")

    server = serve(answer)
    api = connect(f"{server.url}/k8s/c1/")  # as behind a gateway
    assert names_of(api.objects("Pod", {"x": "y"}, fields="a=b")) == ["a", "b"]
    selected = {"labelSelector": "x=y", "fieldSelector": "a=b", "limit": "500"}
    assert server.asked == [selected, selected | {"continue": "next"}]


def test_a_list_whose_next_page_is_no_longer_known_begins_again(
    serve: Callable[..., Server], connect: Callable[..., Api]
) -> None:
    answers = [pods("a", resume="old"), error(410, "too old"), pods("c", resume="new"), pods("d")]

    async def answer(_: web.Request) -> web.Response:
        return answers.pop(0)

    assert names_of(connect(serve(answer).url).objects("Pod")) == ["c", "d"]


def test_a_large_object_that_is_turned_away_at_first_is_sent_again_whole(
    serve: Callable[..., Server], connect: Callable[..., Api]
) -> None:
    made = {"kind": "ConfigMap", "metadata": {"name": "big"}, "data": {"x": "y" * (1 << 20)}}
    busy = [web.Response(status=429, headers={"Retry-After": "0"}), error(401, "Unauthorized")]

    async def answer(request: web.Request) -> web.Response:
        assert request.content_type == "application/apply-patch+yaml"
        data = await request.json()
        return busy.pop() if busy else web.json_response(data)

    server = serve(answer)
    (token := Path(os.environ["KUBECONFIG"]).with_name("token")).write_text("t")
    assert connect(server.url, {"tokenFile": str(token)}).apply(made) == made
    assert server.asked == [{"fieldManager": "callsheet", "force": "true"}] * 3


def event(kind: str, name: str, version: str, **more: Any) -> bytes:
    made = {"metadata": {"name": name, "resourceVersion": version}, **more}
    return json.dumps({"type": kind, "object": made}).encode() + b"\n"


EXPIRED = b'{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old resource version"}}\n'
SILENCE = b""


class Watched:
    """Lists and watches, one answer after the other."""

    def __init__(self, lists: list[web.Response], *watches: list[bytes] | web.Response) -> None:
        self.lists, self.watches = lists, list(watches)
        self.opened: list[str] = []

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return self.lists.pop(0)
        assert request.query["allowWatchBookmarks"] == "true"
        self.opened.append(request.query["resourceVersion"])
        answer = self.watches.pop(0) if self.watches else [SILENCE]
        if isinstance(answer, web.Response):
            return answer
        response = web.StreamResponse()
        await response.prepare(request)
        for line in answer:
            if line is SILENCE:
                await asyncio.sleep(60)
            await response.write(line)
        return response


async def first(events: AsyncIterator[Any], count: int) -> list[tuple[str, Any]]:
    seen: list[tuple[str, Any]] = []
    async for item in events:
        seen.append(
            ("SNAPSHOT", names_of(item.items)) if isinstance(item, Snapshot) else (item.type, item.item)
        )
        if len(seen) == count:
            break
    return seen


def watched(api: Api, count: int) -> list[tuple[str, Any]]:
    async def read() -> list[tuple[str, Any]]:
        seen = await asyncio.wait_for(first(api.client.watch("Pod"), count), 30)
        return [(kind, item if kind == "SNAPSHOT" else item["metadata"]["name"]) for kind, item in seen]

    return api.run(read())


def test_a_watch_that_ends_goes_on_from_the_last_version_bookmarks_included(
    serve: Callable[..., Server], connect: Callable[..., Api]
) -> None:
    cluster = Watched(
        [pods("a", version="5")],
        [event("MODIFIED", "a", "6"), event("BOOKMARK", "", "9")],
        [event("ADDED", "b", "10")[:20], event("ADDED", "b", "10")[20:]],
        error(500, "etcd is not well"),
        [event("DELETED", "a", "11")],
    )
    assert watched(connect(serve(cluster).url), 4) == [
        ("SNAPSHOT", ["a"]),
        ("MODIFIED", "a"),
        ("ADDED", "b"),
        ("DELETED", "a"),
    ]
    assert cluster.opened == ["5", "9", "10", "10"]


@pytest.mark.parametrize("told", [[EXPIRED], error(410, "too old resource version")])
def test_a_watch_whose_version_is_no_longer_known_lists_again(
    told: Any, serve: Callable[..., Server], connect: Callable[..., Api]
) -> None:
    cluster = Watched([pods("a", version="5"), pods("b", version="8")], told, [event("ADDED", "c", "9")])
    assert watched(connect(serve(cluster).url), 3) == [
        ("SNAPSHOT", ["a"]),
        ("SNAPSHOT", ["b"]),
        ("ADDED", "c"),
    ]
    assert cluster.opened == ["5", "8"]


def test_a_silent_watch_is_opened_again(
    serve: Callable[..., Server], connect: Callable[..., Api], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(async_api, "WATCH_SILENCE", 0.1)
    cluster = Watched(
        [pods(version="5")], [event("ADDED", "a", "6"), SILENCE], [SILENCE], [event("DELETED", "a", "7")]
    )
    assert [kind for kind, _ in watched(connect(serve(cluster).url), 3)] == ["SNAPSHOT", "ADDED", "DELETED"]
    assert cluster.opened == ["5", "6", "6"]


def test_a_watch_that_is_refused_says_so(serve: Callable[..., Server], connect: Callable[..., Api]) -> None:
    with pytest.raises(ApiError, match="the cluster refused to watch pods: no"):
        watched(connect(serve(Watched([pods()], error(403, "no"))).url), 2)
    with pytest.raises(Unreachable, match="could not list pods now"):
        watched(connect(serve(Watched([error(500, "")])).url), 2)


class Metadata(msgspec.Struct):
    name: str


class SmallPod(msgspec.Struct):
    metadata: Metadata


def test_objects_of_megabytes_come_as_the_type_that_is_asked_for(
    serve: Callable[..., Server], connect: Callable[..., Api]
) -> None:
    big = event("ADDED", "b", "6", data="x" * (4 << 20))
    api = connect(serve(Watched([pods("a")], [big, event("ADDED", "c", "7")])).url)

    async def read() -> list[Any]:
        seen = []
        async for item in api.client.watch("Pod", type=SmallPod):
            seen.append(item)
            if len(seen) == 3:
                return seen
        raise AssertionError("a watch has no end")

    assert api.run(read()) == [
        Snapshot([SmallPod(Metadata("a"))]),
        Change("ADDED", SmallPod(Metadata("b"))),
        Change("ADDED", SmallPod(Metadata("c"))),
    ]


async def shell(request: web.Request) -> web.StreamResponse:
    """A container whose only program repeats its input in capitals, and fails with 3."""
    if request.query.getall("command")[0] != "shout":
        return error(500, "container not found")
    opened = web.WebSocketResponse(protocols=["v5.channel.k8s.io"])
    await opened.prepare(request)
    assert request.query.get("stdin") == "true"
    async for message in opened:
        if message.data == b"\xff\0":
            break
        await opened.send_bytes(b"\1" + message.data[1:].upper())
    await opened.send_bytes(b"\2done")
    status = {"status": "Failure", "details": {"causes": [{"reason": "ExitCode", "message": "3"}]}}
    await opened.send_bytes(b"\3" + json.dumps(status).encode())
    return opened


def test_a_command_gets_our_input_and_its_output_and_exit_code_come_back(
    serve: Callable[..., Server], connect: Callable[..., Api]
) -> None:
    out, err = io.BytesIO(), io.BytesIO()
    api = connect(serve(shell).url)
    text = b"hello " * 50_000
    code = exec_in_pod(api, POD, "", ["shout"], source=io.BytesIO(text), output={1: out, 2: err})
    assert (code, out.getvalue(), err.getvalue()) == (3, text.upper(), b"done")


def test_a_command_that_is_refused_is_told_in_the_servers_words(
    serve: Callable[..., Server], connect: Callable[..., Api]
) -> None:
    with pytest.raises(
        Unreachable, match="could not run a command in the pod exp-actor-0 now: container not"
    ):
        exec_in_pod(connect(serve(shell).url), POD, "", ["whisper"], output={})

    async def forbid(_: web.Request) -> web.StreamResponse:
        text = 'User "me" cannot get resource "pods/exec" in API group "" in the namespace "x"'
        return error(403, text)

    with pytest.raises(ApiError, match="the right to get pods/exec in the namespace 'x' is missing"):
        exec_in_pod(connect(serve(forbid).url), POD, "", ["shout"], output={})


def test_a_connection_that_breaks_under_a_command_is_no_exit_code(
    serve: Callable[..., Server], connect: Callable[..., Api]
) -> None:
    async def cut(request: web.Request) -> web.StreamResponse:
        opened = web.WebSocketResponse(protocols=["v5.channel.k8s.io"])
        await opened.prepare(request)
        assert request.transport
        request.transport.abort()
        return opened

    with pytest.raises(Unreachable, match="broke while trying to run a command in the pod exp-actor-0"):
        exec_in_pod(connect(serve(cut).url), POD, "", ["shout"], output={})


async def port(request: web.Request) -> web.StreamResponse:
    """Port 80 repeats what comes, ten bytes at most; nothing listens at others."""
    opened = web.WebSocketResponse(protocols=["v4.channel.k8s.io"])
    await opened.prepare(request)
    number = int(request.query["ports"])
    for channel in (b"\0", b"\1"):
        await opened.send_bytes(channel + number.to_bytes(2, "little"))
    if number != 80:
        await opened.send_bytes(b"\1connection refused")
        await asyncio.sleep(60)
    seen = 0
    async for message in opened:
        await opened.send_bytes(message.data)
        seen += len(message.data) - 1
        if seen >= 10:
            break
    return opened


def test_a_port_of_a_pod_is_reached_from_here(
    serve: Callable[..., Server], connect: Callable[..., Api]
) -> None:
    told: list[str] = []
    api = connect(serve(port).url)
    assert query_port(api, "p", 80, b"hello", lambda answer: answer == b"hello", 5.0) == b"hello"
    assert query_port(api, "p", 80, b"hello hello", lambda _: False, 5.0) == b"hello hello"
    forward = Forward(api, lambda: POD, 80, None, told.append)
    for _ in range(2):
        with socket.create_connection(("127.0.0.1", forward.local), 10) as here:
            here.sendall(b"hello")
            assert here.recv(100) == b"hello"
            here.sendall(b"world")
            assert b"".join(iter(lambda: here.recv(100), b"")) == b"world"
    with socket.create_connection(("127.0.0.1", forward.local), 10) as here:
        here.shutdown(socket.SHUT_WR)
        assert here.recv(100) == b""
    forward.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", forward.local), 10)
    assert told == []


def test_a_port_at_which_nothing_listens_is_told(
    serve: Callable[..., Server], connect: Callable[..., Api]
) -> None:
    told: list[str] = []
    forward = Forward(connect(serve(port).url), lambda: POD, 81, None, told.append)
    with socket.create_connection(("127.0.0.1", forward.local), 10) as here:
        assert here.recv(100) == b""
    assert told == ["the pod refused: connection refused"]


def test_a_server_is_trusted_by_the_kubeconfigs_authority_and_name(
    serve: Callable[..., Server], connect: Callable[..., Api], pki: Pki
) -> None:
    async def answer(_: web.Request) -> web.Response:
        return pods()

    url = serve(answer, pki.server("DNS:kubernetes")).url
    authority = {"certificate-authority": str(pki.file)}
    assert connect(url, **authority, **{"tls-server-name": "kubernetes"}).objects("Pod") == []
    assert connect(url, **{"insecure-skip-tls-verify": True}).objects("Pod") == []
    for cluster in (authority, {"tls-server-name": "kubernetes"}, authority | {"tls-server-name": "other"}):
        with pytest.raises(UserError, match="presents a certificate that the kubeconfig does not trust"):
            connect(url, **cluster).objects("Pod")


def test_a_server_that_speaks_no_tls_is_told_so(
    serve: Callable[..., Server], connect: Callable[..., Api]
) -> None:
    async def answer(_: web.Request) -> web.Response:
        return pods()

    url = serve(answer).url.replace("http:", "https:")
    with pytest.raises(Unreachable, match=r"does not answer: .*WRONG_VERSION_NUMBER"):
        connect(url).objects("Pod")


GIVE = """
import json, pathlib
folder = pathlib.Path(__file__).parent
count = len(list(folder.glob("asked-*")))
(folder / f"asked-{count}").touch()
status = json.loads((folder / f"status-{count}").read_text())
print(json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}))
"""


def test_a_renewed_certificate_is_shown_at_once_although_connections_are_open(
    serve: Callable[..., Server], connect: Callable[..., Api], pki: Pki, tmp_path: Path
) -> None:
    accepted = ["cluster-user0"]
    shown: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        assert request.transport
        peer = request.transport.get_extra_info("peercert")
        shown.append(dict(part[0] for part in peer["subject"])["commonName"])
        return pods() if shown[-1] in accepted else error(401, "Unauthorized")

    (tmp_path / "login.py").write_text(GIVE)
    for number in range(2):
        certificate, key = pki.issue(f"user{number}", "DNS:user")
        status = {"clientCertificateData": certificate.read_text(), "clientKeyData": key.read_text()}
        (tmp_path / f"status-{number}").write_text(json.dumps(status))
    program = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": [str(tmp_path / "login.py")],
    }
    url = serve(answer, pki.server("IP:127.0.0.1")).url
    data = base64.b64encode(pki.file.read_bytes()).decode()
    api = connect(url, {"exec": program}, **{"certificate-authority-data": data})
    api.objects("Pod")
    api.objects("Pod")
    accepted[:] = ["cluster-user1"]
    api.objects("Pod")
    assert shown == ["cluster-user0"] * 3 + ["cluster-user1"]


class Proxy:
    """Passes connections on to where each asks for, over TLS of its own."""

    def __init__(self, tls: ssl.SSLContext) -> None:
        self.asked: list[str] = []
        self.heads: list[str] = []
        self._tls = tls
        self._loop = LoopThread("test-server", self._stop)
        self.port = self._loop.run(self._start())

    async def _start(self) -> int:
        self._server = await asyncio.start_server(self._pass_on, "127.0.0.1", 0, ssl=self._tls)
        return int(self._server.sockets[0].getsockname()[1])

    async def _stop(self) -> None:
        self._server.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        verb, place, *_ = head.split()
        assert verb == "CONNECT"
        self.asked.append(place)
        self.heads.append(head)
        host, _, port = place.rpartition(":")
        there = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.gather(_pump(reader, there[1]), _pump(there[0], writer))

    def close(self) -> None:
        self._loop.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
    writer.close()


def test_an_https_proxy_is_trusted_as_any_website_is_and_the_cluster_behind_it_by_its_own_authority(
    serve: Callable[..., Server],
    connect: Callable[..., Api],
    pki: Pki,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def answer(_: web.Request) -> web.Response:
        return pods()

    other = Pki(tmp_path, "website")
    proxy = Proxy(other.server("DNS:localhost"))
    monkeypatch.setenv("SSL_CERT_FILE", str(other.file))
    url = serve(answer, pki.server("IP:127.0.0.1")).url
    cluster = {"certificate-authority": str(pki.file)}
    try:
        monkeypatch.setenv("HTTPS_PROXY", f"https://localhost:{proxy.port}")
        assert connect(url, **cluster).objects("Pod") == []
        assert proxy.asked == [url.removeprefix("https://")]
        monkeypatch.setenv("NO_PROXY", "127.0.0.1,example.com")
        assert connect(url, **cluster).objects("Pod") == []
        assert len(proxy.asked) == 1
        named = {"proxy-url": f"https://me:p%40ss@localhost:{proxy.port}"}
        assert connect(url, **cluster, **named).objects("Pod") == []
        assert f"Proxy-Authorization: Basic {base64.b64encode(b'me:p@ss').decode()}" in proxy.heads[1]
        assert "Bearer" not in "".join(proxy.heads)
        monkeypatch.setenv("SSL_CERT_FILE", str(pki.file))
        with pytest.raises(UserError, match="presents a certificate that the kubeconfig does not trust"):
            connect(url, **cluster, **named).objects("Pod")
    finally:
        proxy.close()
