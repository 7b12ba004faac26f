"""Who we are to a cluster, in each of the ways a kubeconfig says it, before a server that checks."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import stat
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

from callsheet.backends.kubernetes.client import credentials
from callsheet.backends.kubernetes.client.api import Api
from callsheet.backends.kubernetes.client.credentials import tls_context
from callsheet.backends.kubernetes.client.errors import ApiError, Unreachable
from callsheet.errors import UserError


class Server(ThreadingHTTPServer):
    """An API server of one empty list, for whoever shows what it accepts."""

    accepted = ""
    busy = 0
    """How often it turns requests away before it reads any."""
    asked: list[str]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        if self.server.busy:
            self.server.busy -= 1
            self.send_response(429)
            self.send_header("Retry-After", "0")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        shown = self.headers.get("Authorization", "")
        self.server.asked.append(shown)
        good = shown == self.server.accepted
        answer: dict[str, Any] = {"items": [], "metadata": {}} if good else {"message": "Unauthorized"}
        body = json.dumps(answer).encode()
        self.send_response(200 if good else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as made:
        made.asked = []
        Thread(target=made.serve_forever, args=[0.01], daemon=True).start()
        yield made
        made.shutdown()


@pytest.fixture
def config(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config"
    monkeypatch.setenv("KUBECONFIG", str(path))
    monkeypatch.setenv("NO_PROXY", "*")
    return path


def user(config: Path, server: Server, **user: Any) -> Api:
    """A client of a kubeconfig with that user."""
    data = {
        "current-context": "one",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u"}}],
    }
    config.write_text(yaml.safe_dump(data))
    return Api.connect()


def program(config: Path, code: str, **more: Any) -> dict[str, Any]:
    """The `exec` of a kubeconfig with a program that runs this code."""
    file = config.with_name("login.py")
    file.write_text(code)
    version = "client.authentication.k8s.io/v1"
    return {"apiVersion": version, "command": sys.executable, "args": [str(file)], **more}


def test_a_token_and_a_password_are_shown_with_each_request(config: Path, server: Server) -> None:
    server.accepted = "Bearer abc"
    assert user(config, server, token="abc").objects("Pod") == []
    server.accepted = "Basic " + base64.b64encode(b"me:pass").decode()
    assert user(config, server, username="me", password="pass").objects("Pod") == []


def test_a_busy_server_is_asked_again_when_it_says_so(config: Path, server: Server) -> None:
    server.accepted, server.busy = "Bearer abc", 4
    assert user(config, server, token="abc").objects("Pod") == []
    server.busy = 100
    with pytest.raises(Unreachable, match="could not list pods now"):
        user(config, server, token="abc").objects("Pod")
    assert server.busy == 95


def test_a_token_file_is_read_again_when_its_token_is_no_longer_taken(config: Path, server: Server) -> None:
    file = config.with_name("token")
    file.write_text("first\n")
    server.accepted = "Bearer first"
    api = user(config, server, tokenFile="token")  # beside the kubeconfig
    api.objects("Pod")
    file.write_text("second\n")
    server.accepted = "Bearer second"
    api.objects("Pod")
    assert server.asked == ["Bearer first", "Bearer first", "Bearer second"]
    file.unlink()
    server.accepted = "Bearer third"
    with pytest.raises(UserError, match="the token file that the kubeconfig names cannot be read"):
        api.objects("Pod")


COUNTING = """
import json, os, pathlib
asked = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
assert asked["kind"] == "ExecCredential" and not asked["spec"]["interactive"]
file = pathlib.Path(__file__).with_name("count")
file.write_text(file.read_text() + "x" if file.exists() else "x")
token = os.environ["PREFIX"] + str(len(file.read_text()))
print(json.dumps({"apiVersion": asked["apiVersion"], "kind": "ExecCredential", "status": {"token": token}}))
"""


def test_a_program_gives_the_token_and_is_asked_again_only_when_it_is_refused(
    config: Path, server: Server
) -> None:
    server.accepted = "Bearer t1"
    env = [{"name": "PREFIX", "value": "t"}]
    api = user(config, server, exec=program(config, COUNTING, env=env))
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda _: api.objects("Pod"), range(8))) == [[]] * 8
    assert config.with_name("count").read_text() == "x"
    server.accepted = "Bearer t2"
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda _: api.objects("Pod"), range(8))) == [[]] * 8
    assert config.with_name("count").read_text() == "xx"


def test_credentials_that_stay_refused_are_a_refusal(config: Path, server: Server) -> None:
    server.accepted = "Bearer never"
    with pytest.raises(ApiError):
        user(config, server, exec=program(config, COUNTING, env=[{"name": "PREFIX", "value": "t"}])).objects(
            "Pod"
        )
    assert len(server.asked) == 2


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import sys; sys.exit('your session has ended')", "failed with 1: your session has ended"),
        ("print('{}')", "printed neither a token nor a certificate"),
        ("print('hello')", "printed neither a token nor a certificate"),
    ],
)
def test_a_program_that_fails_is_named_with_what_it_said(
    config: Path, server: Server, code: str, said: str
) -> None:
    with pytest.raises(UserError, match=f"which gives your credentials, {said}") as caught:
        user(config, server, exec=program(config, code)).objects("Pod")
    assert caught.value.fix == "log in again"


def test_a_program_that_never_ends_is_killed_and_named(
    config: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "LOGIN", 1.0)
    code = "import os, pathlib, time; pathlib.Path(__file__).with_name('pid').write_text(str(os.getpid())); time.sleep(600)"
    with pytest.raises(UserError, match="did not end within 1 s and was killed") as caught:
        user(config, server, exec=program(config, code)).objects("Pod")
    assert f"{sys.executable} {config.with_name('login.py')}" in caught.value.fix
    assert not Path("/proc", config.with_name("pid").read_text()).exists()


def test_who_holds_a_good_token_does_not_wait_for_another_who_fetches_one() -> None:
    async def scenario() -> None:
        fetching, go_on = asyncio.Event(), asyncio.Event()
        made = iter([credentials.Credential(tls_context({}, {}), {"n": n}) for n in ("first", "second")])

        async def fetch() -> credentials.Credential:
            one = next(made)
            if one.headers["n"] == "second":
                fetching.set()
                await go_on.wait()
            return one

        held = credentials.Credentials(fetch)
        first = await held.get()
        again = [asyncio.create_task(held.get(first)) for _ in range(3)]
        await fetching.wait()
        assert await held.get() is first
        go_on.set()
        renewed = await asyncio.gather(*again)
        assert [one.headers["n"] for one in renewed] == ["second"] * 3
        assert await held.get() is await held.get(first) is renewed[0]

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_a_program_that_is_not_there_is_told_with_its_owners_hint(config: Path, server: Server) -> None:
    how = program(config, "", installHint="get it from the cloud's shop") | {"command": "no-such-login"}
    with pytest.raises(UserError, match="no-such-login, which gives your credentials") as caught:
        user(config, server, exec=how).objects("Pod")
    assert caught.value.fix == "get it from the cloud's shop"


def test_what_cannot_be_used_is_told_before_anything_is_asked(config: Path, server: Server) -> None:
    with pytest.raises(UserError, match="auth-provider is of a kind that Kubernetes dropped"):
        user(config, server, **{"auth-provider": {"name": "gcp"}})
    with pytest.raises(UserError, match=r"exec has the apiVersion 'example\.com/v1'"):
        user(config, server, exec={"apiVersion": "example.com/v1", "command": "x"})
    with pytest.raises(UserError, match="client-certificate-data of the kubeconfig is not base64"):
        user(config, server, **{"client-certificate-data": "%%%"})
    with pytest.raises(UserError, match="a certificate that the kubeconfig names cannot be read"):
        user(config, server, **{"client-certificate": "none.pem"})
    assert server.asked == []


def test_a_clients_key_lies_in_no_file_that_others_can_read_or_a_kill_leaves_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = []

    def load(_: ssl.SSLContext, name: str) -> None:
        file = Path(name)
        assert str(file.readlink()).startswith("/memfd:")
        seen.append((file, stat.S_IMODE(file.stat().st_mode), file.read_text()))

    monkeypatch.setattr("ssl.SSLContext.load_cert_chain", load)
    data = {
        key: base64.b64encode(key.encode()).decode() for key in ("client-certificate-data", "client-key-data")
    }
    tls_context({}, data)
    ((file, mode, text),) = seen
    assert mode == 0o600
    assert text == "client-certificate-data\nclient-key-data"
    assert not file.exists()
