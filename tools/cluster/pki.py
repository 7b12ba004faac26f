"""Certificates and kubeconfig files: each cluster has an authority of its own, which nothing else trusts."""

from __future__ import annotations

import base64
import json
import os
from dataclasses import dataclass
from pathlib import Path

from tools.cluster.shell import run
from tools.cluster.state import Cluster

API_PORT = 6443
DAYS = "365"
_NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc"]


@dataclass(frozen=True)
class Identity:
    """A certificate and its key, signed by the cluster's authority."""

    folder: Path
    name: str

    @property
    def certificate(self) -> Path:
        return self.folder / f"{self.name}.crt"

    @property
    def key(self) -> Path:
        return self.folder / f"{self.name}.key"


def folder(cluster: Cluster) -> Path:
    return cluster.folder / "pki"


def authority(cluster: Cluster) -> Identity:
    return Identity(folder(cluster), "ca")


def make_authority(cluster: Cluster) -> None:
    """The authority, and the key that signs the tokens of service accounts."""
    folder(cluster).mkdir(mode=0o700, parents=True, exist_ok=True)
    ca = authority(cluster)
    subject = f"/CN=callsheet-{cluster.name}"
    run(
        [
            "openssl",
            "req",
            "-x509",
            *_NEW_KEY,
            "-days",
            DAYS,
            "-subj",
            subject,
            "-keyout",
            ca.key,
            "-out",
            ca.certificate,
        ]
    )
    tokens = Identity(folder(cluster), "tokens")
    run(["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", tokens.key])
    run(["openssl", "pkey", "-in", tokens.key, "-pubout", "-out", tokens.certificate.with_suffix(".pub")])


def issue(cluster: Cluster, name: str, subject: str, alternatives: str) -> Identity:
    """A certificate for one user or server; `alternatives` as openssl writes them (`DNS:a,IP:b`)."""
    own, ca = Identity(folder(cluster), name), authority(cluster)
    words: list[str | Path] = ["openssl", "req", "-x509", *_NEW_KEY, "-days", DAYS, "-subj", subject]
    words += ["-CA", ca.certificate, "-CAkey", ca.key, "-keyout", own.key, "-out", own.certificate]
    words += ["-addext", f"subjectAltName={alternatives}", "-addext", "basicConstraints=critical,CA:FALSE"]
    run(words)
    return own


def write_kubeconfig(cluster: Cluster, user: Identity, path: Path) -> None:
    """A kubeconfig that stands on its own, readable by its owner alone."""

    def embedded(file: Path) -> str:
        return base64.b64encode(file.read_bytes()).decode()

    context = f"callsheet-{cluster.name}"
    server = {
        "server": f"https://{cluster.api_host}:{API_PORT}",
        "certificate-authority-data": embedded(authority(cluster).certificate),
    }
    credentials = {
        "client-certificate-data": embedded(user.certificate),
        "client-key-data": embedded(user.key),
    }
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": context, "cluster": server}],
        "users": [{"name": context, "user": credentials}],
        "contexts": [{"name": context, "context": {"cluster": context, "user": context}}],
        "current-context": context,
    }
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(config, file, indent=1)


def give_to_caller(path: Path) -> None:
    """Under sudo the file goes to the person who called it: it is for their kubectl, and they are root anyway."""
    if caller := os.environ.get("SUDO_UID"):
        os.chown(path, int(caller), -1)
