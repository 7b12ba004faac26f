"""Whom we trust and who we are: certificates, tokens, and programs that give either, as a kubeconfig names them."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import os
import shlex
import ssl
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from callsheet.errors import UserError

LOGIN = 120.0
"""Seconds that a program may take to give credentials: it may ask people to log in in their browser."""
_EXEC = "client.authentication.k8s.io/"
_SEE = "see: kubectl config view"
_CLUSTER_INFO = [
    "server",
    "tls-server-name",
    "insecure-skip-tls-verify",
    "certificate-authority-data",
    "proxy-url",
]
"""What a program learns about its cluster, if the kubeconfig says so."""


@dataclass(frozen=True, eq=False)
class Credential:
    """What a request shows. Renewed ones are other objects, even if they say the same."""

    tls: ssl.SSLContext
    headers: dict[str, str]


class Credentials:
    """Fetched when they are first needed, and again when the cluster no longer accepts them."""

    def __init__(self, fetch: Callable[[], Awaitable[Credential]]) -> None:
        self._fetch = fetch
        self._current: Credential | None = None
        self._fetching: asyncio.Task[Credential] | None = None

    async def get(self, rejected: Credential | None = None) -> Credential:
        """Something other than what was rejected, if there is anything else.

        Requests that meet here fetch it once. Those that hold something that was not rejected do not wait.
        """
        if self._current is not None and self._current is not rejected:
            return self._current
        if self._fetching is None:
            self._fetching = asyncio.create_task(self._renew())
            self._fetching.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(self._fetching)

    async def _renew(self) -> Credential:
        try:
            self._current = await self._fetch()
        finally:
            self._fetching = None
        return self._current


def credentials(cluster: Mapping[str, Any], user: Mapping[str, Any], proxy: str = "") -> Credentials:
    """The user's credentials; what of them cannot be used is an error now."""
    tls = tls_context(cluster, user, proxy)
    headers = {}
    if user.get("tokenFile"):
        return Credentials(partial(_read_token, tls, Path(user["tokenFile"])))
    if user.get("token"):
        headers = _bearer(user["token"])
    elif user.get("exec"):
        return Credentials(Program(user["exec"], cluster, tls, proxy))
    elif user.get("username"):
        pair = f"{user['username']}:{user.get('password') or ''}"
        headers = {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
    elif user.get("auth-provider"):
        raise UserError(
            "the kubeconfig's auth-provider is of a kind that Kubernetes dropped with 1.26",
            fix="log in again, so that the kubeconfig names a program (exec) instead",
        )
    fixed = Credential(tls, headers)

    async def fetch() -> Credential:
        return fixed

    return Credentials(fetch)


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def tls_context(cluster: Mapping[str, Any], user: Mapping[str, Any], proxy: str = "") -> ssl.SSLContext:
    """Trust the cluster's own authority alone, whatever SSL_CERT_FILE and the like say; show the user's certificate."""
    try:
        return _context(
            cluster,
            _decoded(user, "client-certificate-data") or _read(user, "client-certificate"),
            _decoded(user, "client-key-data") or _read(user, "client-key"),
            proxy,
        )
    except ssl.SSLError as error:
        raise UserError(f"a certificate of the kubeconfig cannot be used: {error}", fix=_SEE) from None
    except OSError as error:
        raise UserError(
            f"a certificate that the kubeconfig names cannot be read: {error}", fix=_SEE
        ) from None


def _context(cluster: Mapping[str, Any], certificate: str, key: str, proxy: str) -> ssl.SSLContext:
    made = _ProxiedContext(ssl.PROTOCOL_TLS_CLIENT)
    made.proxy_host = urlsplit(proxy).hostname if proxy.startswith("https:") else None
    file, data = cluster.get("certificate-authority"), _decoded(cluster, "certificate-authority-data")
    if file or data:
        made.load_verify_locations(file, cadata=data or None)
    else:
        made.load_default_certs()
    if cluster.get("insecure-skip-tls-verify"):
        made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    if certificate or key:
        with _file_of(f"{certificate}\n{key}".encode()) as name:
            made.load_cert_chain(name)
    return made


class _ProxiedContext(ssl.SSLContext):
    """The HTTP library would use the cluster's context for an HTTPS proxy too: that one is trusted as any website."""

    proxy_host: str | None = None

    def wrap_bio(self, incoming: Any, outgoing: Any, *args: Any, **options: Any) -> ssl.SSLObject:
        host = options.get("server_hostname")
        if host is not None and host == self.proxy_host:
            return ssl.create_default_context().wrap_bio(incoming, outgoing, *args, **options)
        return super().wrap_bio(incoming, outgoing, *args, **options)


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


def _decoded(part: Mapping[str, Any], key: str) -> str:
    """What a field holds in base64; empty if there is none."""
    try:
        return base64.b64decode(part.get(key) or "", validate=True).decode()
    except (binascii.Error, ValueError, TypeError):
        raise UserError(f"{key} of the kubeconfig is not base64", fix=_SEE) from None


def _read(part: Mapping[str, Any], key: str) -> str:
    return Path(part[key]).read_text(encoding="utf-8") if part.get(key) else ""


async def _read_token(tls: ssl.SSLContext, path: Path) -> Credential:
    """The token of a file that somebody renews: in a pod, the kubelet does."""
    try:
        return Credential(tls, _bearer(path.read_text(encoding="utf-8").strip()))
    except OSError as error:
        raise UserError(
            f"the token file that the kubeconfig names cannot be read: {error}", fix=_SEE
        ) from None


class Program:
    """A program that prints a token or a certificate, such as those of the clouds."""

    def __init__(
        self, settings: Mapping[str, Any], cluster: Mapping[str, Any], tls: ssl.SSLContext, proxy: str
    ) -> None:
        version = str(settings.get("apiVersion") or "")
        if not version.startswith(_EXEC):
            raise UserError(
                f"the kubeconfig's exec has the apiVersion {version!r}", fix=f"only {_EXEC}v1 is supported"
            )
        spec: dict[str, Any] = {"interactive": False}
        if settings.get("provideClusterInfo"):
            spec["cluster"] = {key: cluster[key] for key in _CLUSTER_INFO if cluster.get(key)}
        self._request = {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
        self._command = [
            str(settings.get("command") or ""),
            *(str(word) for word in settings.get("args") or []),
        ]
        self._name = f"{self._command[0]}, which gives your credentials,"
        self._env = {str(item["name"]): str(item["value"]) for item in settings.get("env") or []}
        self._hint = str(settings.get("installHint") or "").strip()
        self._cluster = cluster
        self._tls = tls
        self._proxy = proxy

    async def __call__(self) -> Credential:
        """A fresh token, or a fresh certificate for all connections that are opened from now on."""
        try:
            status = json.loads(await self._run())["status"]
            token, certificate = status.get("token"), status.get("clientCertificateData")
            if not token and not certificate:
                raise KeyError("token")
            tls = self._tls
            if certificate:
                tls = _context(self._cluster, certificate, status["clientKeyData"], self._proxy)
        except ssl.SSLError as error:
            raise UserError(
                f"{self._name} printed a certificate that cannot be used: {error}", fix="log in again"
            ) from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UserError(
                f"{self._name} printed neither a token nor a certificate with its key", fix="log in again"
            ) from None
        return Credential(tls, _bearer(token) if token else {})

    async def _run(self) -> bytes:
        env = os.environ | self._env | {"KUBERNETES_EXEC_INFO": json.dumps(self._request)}
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command, env=env, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe
            )
        except OSError as error:
            raise UserError(
                f"{self._name} cannot be started: {error.strerror}",
                fix=self._hint or "install it, or log in again",
            ) from None
        try:
            async with asyncio.timeout(LOGIN):
                output, complaints = await process.communicate()
        except TimeoutError:
            raise UserError(
                f"{self._name} did not end within {LOGIN:.0f} s and was killed",
                fix=f"run it yourself to see what it waits for: {shlex.join(self._command)}",
            ) from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            text = complaints.decode(errors="replace").strip()
            raise UserError(f"{self._name} failed with {process.returncode}: {text}", fix="log in again")
        return output
