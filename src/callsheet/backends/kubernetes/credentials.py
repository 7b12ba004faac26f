"""Whom we trust and who we are: certificates, tokens, and programs that give tokens, as a kubeconfig names them."""

from __future__ import annotations

import base64
import binascii
import json
import os
import ssl
import subprocess
import tempfile
import threading
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any

import httpx2

from callsheet.errors import UserError

_EXEC = "client.authentication.k8s.io/"
_SEE = "see: kubectl config view"


def trust(cluster: Mapping[str, Any], user: Mapping[str, Any]) -> ssl.SSLContext:
    """Trust the cluster's own authority alone, whatever SSL_CERT_FILE and the like say; show the user's certificate."""
    try:
        made = ssl.create_default_context(
            cafile=cluster.get("certificate-authority"), cadata=_text(cluster, "certificate-authority-data")
        )
        if cluster.get("insecure-skip-tls-verify"):
            made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
        certificate, key = _text(user, "client-certificate-data"), _text(user, "client-key-data")
        if certificate or key:
            # The interpreter takes them from files alone: one that only we can read, for a moment.
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder, "client.pem")
                file.touch(mode=0o600)
                file.write_text(
                    f"{certificate or _read(user, 'client-certificate')}\n{key or _read(user, 'client-key')}"
                )
                made.load_cert_chain(file)
        elif user.get("client-certificate"):
            made.load_cert_chain(user["client-certificate"], user.get("client-key"))
    except ssl.SSLError as error:
        raise UserError(f"a certificate of the kubeconfig cannot be used: {error}", fix=_SEE) from None
    except OSError as error:
        raise UserError(
            f"a certificate that the kubeconfig names cannot be read: {error}", fix=_SEE
        ) from None
    return made


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


def identity(user: Mapping[str, Any]) -> httpx2.Auth | None:
    """How each request says who we are; None where a certificate does, or nothing."""
    if user.get("tokenFile"):
        return Renewed(TokenFile(Path(user["tokenFile"])))
    if user.get("token"):
        return Token(user["token"])
    if user.get("exec"):
        return Renewed(Program(user["exec"]))
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


class Renewed(httpx2.Auth):
    """A token that is fetched when it is first needed, and again when the cluster no longer takes it."""

    def __init__(self, fetch: Callable[[], str]) -> None:
        self._fetch = fetch
        self._token = ""
        self._lock = threading.Lock()

    def sync_auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response]:
        used = self._renewed("")
        request.headers["Authorization"] = f"Bearer {used}"
        response = yield request
        if response.status_code == 401:
            request.headers["Authorization"] = f"Bearer {self._renewed(used)}"
            yield request

    def _renewed(self, refused: str) -> str:
        """A token other than the refused one; requests that meet here at once fetch it once."""
        with self._lock:
            if self._token == refused:
                self._token = self._fetch()
            return self._token


class TokenFile:
    """A file whose token somebody renews: the kubelet does so in a pod."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self) -> str:
        """The token that it holds now."""
        try:
            return self._path.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise UserError(
                f"the token file that the kubeconfig names cannot be read: {error}", fix=_SEE
            ) from None


class Program:
    """A program that prints a token, such as those of the clouds."""

    def __init__(self, how: Mapping[str, Any]) -> None:
        self._version = str(how.get("apiVersion") or "")
        if not self._version.startswith(_EXEC):
            raise UserError(
                f"the kubeconfig's exec has the apiVersion {self._version!r}", fix=f"{_EXEC}v1 is known"
            )
        self._command = [str(how.get("command") or ""), *(str(word) for word in how.get("args") or [])]
        self._env = {str(item["name"]): str(item["value"]) for item in how.get("env") or []}
        self._hint = str(how.get("installHint") or "").strip()

    def __call__(self) -> str:
        """A fresh token."""
        asked = {"apiVersion": self._version, "kind": "ExecCredential", "spec": {"interactive": False}}
        env = os.environ | self._env | {"KUBERNETES_EXEC_INFO": json.dumps(asked)}
        name = self._command[0]
        try:
            done = subprocess.run(
                self._command, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False
            )
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
        try:
            return str(json.loads(done.stdout)["status"]["token"])
        except (ValueError, KeyError, TypeError):
            raise UserError(
                f"{name}, which gives your credentials, printed no token", fix="log in again"
            ) from None
