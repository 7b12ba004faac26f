"""The Debian packages a cluster needs, fetched only when one of their programs is missing."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from tools.cluster.errors import ClusterError
from tools.cluster.shell import run, say

# package -> a file or a program that proves it is there
CLUSTER: Mapping[str, str] = {
    "ca-certificates": "/etc/ssl/certs/ca-certificates.crt",
    "conntrack": "conntrack",
    "containerd": "containerd",
    "containernetworking-plugins": "/usr/lib/cni/ptp",
    "docker-registry": "docker-registry",
    "ethtool": "ethtool",
    "gcc": "gcc",
    "iproute2": "ip",
    "iptables": "iptables",
    "kmod": "modprobe",
    "libc6-dev": "/usr/include/stdlib.h",
    "nftables": "nft",
    "openssl": "openssl",
    "runc": "runc",
    "socat": "socat",
    "util-linux": "nsenter",
}
IMAGES: Mapping[str, str] = {"buildah": "buildah", "debootstrap": "debootstrap"}
# Asked by a package before it starts its service: 101 says no.
POLICY = Path("/usr/sbin/policy-rc.d")


def require(packages: Mapping[str, str]) -> None:
    """Install what is missing, and say so in one line."""
    missing = [name for name, proof in packages.items() if not _there(proof)]
    if not missing:
        return
    listed = " ".join(missing)
    if shutil.which("apt-get") is None:
        raise ClusterError(
            f"this machine has no apt-get, and these are missing: {listed}", "install them another way"
        )
    begun = time.monotonic()
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    run(["apt-get", "update", "-qq"], env=env)
    with _no_services():
        run(["apt-get", "install", "-qq", "-y", "--no-install-recommends", *missing], env=env)
    say(f"installed {listed} with apt-get in {time.monotonic() - begun:.0f} s")


@contextlib.contextmanager
def _no_services() -> Iterator[None]:
    """The packages bring services (containerd, a registry) that would start by themselves; we only want the programs."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink(missing_ok=True)


def _there(proof: str) -> bool:
    return Path(proof).exists() if proof.startswith("/") else shutil.which(proof) is not None
