"""The image registry of a cluster: what is pushed to it from the host, its nodes pull.

Images are called `registry.callsheet.dev/...` in every cluster, whatever its addresses are; containerd is told where
that is. The blobs are kept in the cache, so that a second cluster, or tomorrow's, has them at once.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tools.cluster.state import Cluster
from tools.cluster.units import Part
from tools.cluster.versions import cache

HOST = "registry.callsheet.dev"
PORT = 5000
LARGEST = 4 << 30
"""Bytes of blobs that are kept from one cluster to the next."""


def reference(name: str) -> str:
    """The name by which pods know an image of the registry."""
    return f"{HOST}/{name}"


def push_target(cluster: Cluster, name: str) -> str:
    """Where the host pushes the image of that name."""
    return f"docker://{cluster.api_host}:{PORT}/{name}"


def storage() -> Path:
    return cache() / "registry"


def forget_when_large() -> None:
    """Remove all blobs once they are too many; to be called while no registry runs. What is missing is pushed again."""
    if sum(path.stat().st_size for path in storage().rglob("*") if path.is_file()) > LARGEST:
        shutil.rmtree(storage())


def part(cluster: Cluster) -> Part:
    config = cluster.folder / "registry.json"
    storage().mkdir(parents=True, exist_ok=True)
    config.write_text(
        json.dumps(
            {
                "version": 0.1,
                "storage": {"filesystem": {"rootdirectory": str(storage())}, "delete": {"enabled": True}},
                "http": {"addr": f"{cluster.api_host}:{PORT}"},
                "log": {"level": "warn", "accesslog": {"disabled": True}},
            }
        )
    )
    return Part("registry", ["docker-registry", "serve", str(config)])


def write_hosts(cluster: Cluster, folder: Path) -> None:
    """Tell a node's containerd where the registry is."""
    place = folder / HOST
    place.mkdir(parents=True, exist_ok=True)
    server = f"http://{cluster.api_host}:{PORT}"
    (place / "hosts.toml").write_text(
        f'server = "{server}"\n[host."{server}"]\n  capabilities = ["pull", "resolve"]\n'
    )
