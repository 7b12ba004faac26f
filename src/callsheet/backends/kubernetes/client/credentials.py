"""Whom we trust and who we are: certificates, tokens, and programs that give either, as a kubeconfig names them."""

from __future__ import annotations

import base64
import binascii
import json
import os
import shlex
import ssl
import subprocess
import tempfile
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from callsheet.errors import UserError

LOGIN = 120.0
"""Seconds that a program may take to give credentials: it may ask people to log in in their browser."""
_EXEC = "client.authentication.k8s.io/"
_SEE = "see: kubectl config view"
_TOLD = ("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data", "proxy-url")
"""What a program is told of its cluster, where the kubeconfig wishes so."""


class Shared(ssl.SSLContext):
    """A context with which many threads connect at once, so that nothing of it may change meanwhile.

    The HTTP library names its protocol before every connection. OpenSSL then frees the list of names while the
    handshake of another thread may be copying it, and the server refuses that handshake: it cannot be decoded.
    """

    def set_alpn_protocols(self, alpn_protocols: Iterable[str]) -> None:
        """They were named when it was made."""


def trust(cluster: Mapping[str, Any], user: Mapping[str, Any]) -> ssl.SSLContext:
    """Trust the cluster's own authority alone, whatever SSL_CERT_FILE and the like say; show the user's certificate."""
    try:
        made = Shared(ssl.PROTOCOL_TLS_CLIENT)
        super(Shared, made).set_alpn_protocols(["http/1.1"])
        file, data = cluster.get("certificate-authority"), _text(cluster, "certificate-authority-data")
        if file or data:
            made.load_verify_locations(file, cadata=data)
        else:
            made.load_default_certs()
        if cluster.get("insecure-skip-tls-verify"):
            made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
        certificate, key = _text(user, "client-certificate-data"), _text(user, "client-key-data")
        if certificate or key:
            _show(made, certificate or _read(user, "client-certificate"), key or _read(user, "client-key"))
        elif user.get("client-certificate"):
            made.load_cert_chain(user["client-certificate"], user.get("client-key"))
    except ssl.SSLError as error:
        raise UserError(f"a certificate of the kubeconfig cannot be used: {error}", fix=_SEE) from None
    except OSError as error:
        raise UserError(
            f"a certificate that the kubeconfig names cannot be read: {error}", fix=_SEE
        ) from None
    return made


def _show(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Show this certificate to the cluster from now on."""
    with _file_of(f"{certificate}\n{key}".encode()) as file:
        context.load_cert_chain(file)


@contextmanager
def _file_of(secret: bytes) -> Iterator[str]:
    """The interpreter takes keys from files alone: one that only we can read, and that a kill does not leave behind."""
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        with open(os.memfd_create("client.pem"), "wb") as memory:
            os.fchmod(memory.fileno(), 0o600)
            memory.write(secret)
            memory.flush()
            yield f"/proc/self/fd/{memory.fileno()}"
        return
    with tempfile.NamedTemporaryFile() as file:
        file.write(secret)
        file.flush()
        yield file.name


def _text(part: Mapping[str, Any], key: str) -> str | None:
    """What a field holds in base64; None where there is none."""
    data = part.get(key)
    if not data:
        return None
    try:
        return base64.b64decode(data, validate=True).decode()
    except (binascii.Error, ValueError, TypeError):
        raise UserError(f"{key} of the kubeconfig is not base64", fix=_SEE) from None


def _read(part: Mapping[str, Any], key: str) -> str:
    return Path(part[key]).read_text(encoding="utf-8") if part.get(key) else ""


def identity(
    cluster: Mapping[str, Any], user: Mapping[str, Any], trusted: ssl.SSLContext
) -> httpx2.Auth | None:
    """How each request says who we are; None where a certificate does, or nothing."""
    if user.get("tokenFile"):
        return Renewed(TokenFile(Path(user["tokenFile"])))
    if user.get("token"):
        return Token(user["token"])
    if user.get("exec"):
        return Renewed(Program(user["exec"], cluster, trusted))
    if user.get("username"):
        return httpx2.BasicAuth(user["username"], user.get("password") or "")
    if user.get("auth-provider"):
        raise UserError(
            "the kubeconfig's auth-provider is of a kind that Kubernetes gave up with 1.26",
            fix="log in anew, so that the kubeconfig names a program (exec) instead",
        )
    return None


class Token(httpx2.Auth):
    """A token that stays."""

    def __init__(self, token: str) -> None:
        self._token = token

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response]:
        request.headers["Authorization"] = f"Bearer {self._token}"
        yield request


@dataclass(frozen=True, eq=False)
class Fetched:
    """What somebody gave us to show: each time something new, even if it is the same word."""

    token: str
    """Empty where it was a certificate."""


class Renewed(httpx2.Auth):
    """A token that is fetched when it is first needed, and again when the cluster no longer takes it."""

    def __init__(self, fetch: Callable[[], Fetched]) -> None:
        self._fetch = fetch
        self._held: Fetched | None = None
        self._fetching: Future[Fetched] | None = None
        self._lock = threading.Lock()

    def sync_auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response]:
        used = self._show(request, None)
        response = yield request
        if response.status_code == 401:
            self._show(request, used)
            yield request

    def _show(self, request: httpx2.Request, refused: Fetched | None) -> Fetched:
        """Something other than what was refused; requests that meet here at once fetch it once. Who holds something
        that was not refused does not wait for others who fetch."""
        mine: Future[Fetched] | None = None
        with self._lock:
            held = self._held if self._held is not refused else None
            waited = self._fetching
            if held is None and waited is None:
                mine = self._fetching = waited = Future()
        if mine is not None:
            self._fetch_for(mine)
        if held is None and waited is not None:
            held = waited.result()
        assert held is not None
        if held.token:
            request.headers["Authorization"] = f"Bearer {held.token}"
        return held

    def _fetch_for(self, asked: Future[Fetched]) -> None:
        """Outside the lock: it may take long, and it ends."""
        try:
            fetched = self._fetch()
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            with self._lock:
                self._fetching = None
            asked.set_exception(error)
        else:
            with self._lock:
                self._held, self._fetching = fetched, None
            asked.set_result(fetched)


class TokenFile:
    """A file whose token somebody renews: the kubelet does so in a pod."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self) -> Fetched:
        """The token that it holds now."""
        try:
            return Fetched(self._path.read_text(encoding="utf-8").strip())
        except OSError as error:
            raise UserError(
                f"the token file that the kubeconfig names cannot be read: {error}", fix=_SEE
            ) from None


class Program:
    """A program that prints a token or a certificate, such as those of the clouds."""

    def __init__(self, how: Mapping[str, Any], cluster: Mapping[str, Any], trusted: ssl.SSLContext) -> None:
        version = str(how.get("apiVersion") or "")
        if not version.startswith(_EXEC):
            raise UserError(
                f"the kubeconfig's exec has the apiVersion {version!r}", fix=f"{_EXEC}v1 is known"
            )
        self._asked: dict[str, Any] = {
            "apiVersion": version,
            "kind": "ExecCredential",
            "spec": {"interactive": False},
        }
        if how.get("provideClusterInfo"):
            self._asked["spec"]["cluster"] = {key: cluster[key] for key in _TOLD if cluster.get(key)}
        self._command = [str(how.get("command") or ""), *(str(word) for word in how.get("args") or [])]
        self._env = {str(item["name"]): str(item["value"]) for item in how.get("env") or []}
        self._hint = str(how.get("installHint") or "").strip()
        self._trusted = trusted

    def __call__(self) -> Fetched:
        """A fresh token; a certificate is shown by all connections that are made from now on."""
        name = self._command[0]
        try:
            status = json.loads(self._run())["status"]
            token, certificate = status.get("token"), status.get("clientCertificateData")
            if not token and not certificate:
                raise KeyError("token")
            if certificate:
                _show(self._trusted, certificate, status["clientKeyData"])
        except ssl.SSLError as error:
            raise UserError(
                f"{name}, which gives your credentials, printed a certificate that cannot be used: {error}",
                fix="log in again",
            ) from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UserError(
                f"{name}, which gives your credentials, printed neither a token nor a certificate with its key",
                fix="log in again",
            ) from None
        return Fetched(str(token or ""))

    def _run(self) -> bytes:
        env = os.environ | self._env | {"KUBERNETES_EXEC_INFO": json.dumps(self._asked)}
        name = self._command[0]
        try:
            done = subprocess.run(
                self._command,
                env=env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=LOGIN,
            )
        except subprocess.TimeoutExpired:
            raise UserError(
                f"{name}, which gives your credentials, did not end within {LOGIN:.0f} s and was killed",
                fix=f"run it by hand to see what it waits for: {shlex.join(self._command)}",
            ) from None
        except OSError as error:
            raise UserError(
                f"{name}, which gives your credentials, cannot be started: {error.strerror}",
                fix=self._hint or "install it, or log in again",
            ) from None
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip()
            raise UserError(
                f"{name}, which gives your credentials, failed with {done.returncode}: {said}",
                fix="log in again",
            )
        return done.stdout
