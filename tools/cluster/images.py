"""Container images: built from `images/Dockerfile` without Docker, and brought to the nodes."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

from tools.cluster import node, packages, registry, wheels
from tools.cluster.errors import ClusterError
from tools.cluster.shell import run, say
from tools.cluster.state import Cluster
from tools.cluster.versions import DEBIAN, cache
from tools.cluster.wheels import REPOSITORY

DOCKERFILE = REPOSITORY / "images" / "Dockerfile"
Target = Literal["slim", "learner"]
"""A part of the Dockerfile that becomes an image."""
NAMES: dict[Target, str] = {"slim": "callsheet", "learner": "callsheet-learner"}
KEEP: dict[Target, int] = {"slim": 5, "learner": 1}
_BASE_PACKAGES = "ca-certificates,python3,python3-venv"

# What the builders mount is seen by nobody else, and goes with them when they are killed.
_ALONE = ("unshare", "--mount", "--propagation", "private")


def _buildah(*words: str | Path) -> str:
    # A storage of our own: the developer's images are none of our business.
    own = cache() / "buildah"
    return run([*_ALONE, "buildah", "--root", own / "root", "--runroot", own / "run", *words])


def _images() -> list[str]:
    """What is in the storage, the newest first."""
    return _buildah("images", "--format", "{{.Name}}:{{.Tag}}").split()


def _exists(reference: str) -> bool:
    return reference in _images()


def base_image() -> str:
    """A Debian with Python, made by debootstrap: what `python:3.11-slim` is where Docker Hub can be reached."""
    key = hashlib.sha256(f"{DEBIAN} {_BASE_PACKAGES}".encode()).hexdigest()[:12]
    reference = f"localhost/callsheet-base:{key}"
    if _exists(reference):
        return reference
    begun = time.monotonic()
    say("making the base image with debootstrap (once; about a minute) ...")
    with tempfile.TemporaryDirectory(dir=cache()) as scratch:
        root = Path(scratch) / "root"
        run(
            [
                *_ALONE,
                "debootstrap",
                "--variant=minbase",
                f"--include={_BASE_PACKAGES}",
                DEBIAN,
                root,
            ]
        )
        for litter in (
            "var/cache/apt",
            "var/lib/apt/lists",
            "usr/share/doc",
            "usr/share/man",
            "usr/share/locale",
        ):
            shutil.rmtree(root / litter, ignore_errors=True)
        tar = Path(scratch) / "root.tar"
        run(["tar", "--create", "--file", tar, "--directory", root, "."])
        (Path(scratch) / "Dockerfile").write_text("FROM scratch\nADD root.tar /\n")
        _buildah("bud", "--isolation", "chroot", "--tag", reference, scratch)
    say(f"base image: {time.monotonic() - begun:.0f} s")
    return reference


def project_image(target: Target = "slim") -> str:
    """An image of this checkout, built when its sources have changed; its name without the registry."""
    packages.require(packages.IMAGES)
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "images.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another command is building an image: waiting for it ...")
            fcntl.flock(lock, fcntl.LOCK_EX)
        name = f"{NAMES[target]}:{source_hash()}"
        if not _exists(f"localhost/{name}"):
            _build(target, name)
            _forget_old_images(target)
    return name


def _build(target: Target, name: str) -> None:
    base = base_image()
    begun = time.monotonic()
    say(f"building the image {name} ...")
    with tempfile.TemporaryDirectory(dir=cache()) as context:
        told = {"BASE": base} | wheels.collect(Path(context), torch=target == "learner")
        arguments = [word for key, value in told.items() for word in ("--build-arg", f"{key}={value}")]
        options = ("--isolation", "chroot", "--layers", "--file", DOCKERFILE, "--target", target)
        _buildah("bud", *options, *arguments, "--tag", name, context)
    say(f"image {name}: {time.monotonic() - begun:.0f} s")


def _forget_old_images(target: Target) -> None:
    """Every change of the sources is a new image; only the newest are of use to anyone."""
    ours = [one for one in _images() if one.startswith(f"localhost/{NAMES[target]}:")]
    if len(ours) > KEEP[target]:
        _buildah("rmi", *ours[KEEP[target] :])
        _buildah("rmi", "--prune")


def source_hash() -> str:
    """A word that changes with all that an image of this checkout is made of."""
    sources = sorted((REPOSITORY / "src").rglob("*"))
    ours = [path for path in sources if path.is_file() and "__pycache__" not in path.parts]
    return wheels.hash_of([DOCKERFILE, REPOSITORY / "pyproject.toml", REPOSITORY / "constraints.txt", *ours])


def push_project_image(cluster: Cluster, target: Target = "slim") -> str:
    """Build an image of this checkout, push it to the cluster's registry; the name that pods use."""
    name = project_image(target)
    return push(cluster, name, name)


def push(cluster: Cluster, name: str, to: str) -> str:
    """Push what was built as `name` to the cluster's registry, as `to` there; the name that pods use."""
    quickly = ("--quiet", "--compression-format", "zstd", "--compression-level", "1", "--format", "oci")
    _buildah("push", "--tls-verify=false", *quickly, f"localhost/{name}", registry.push_target(cluster, to))
    return registry.reference(to)


def load(cluster: Cluster, image: str) -> None:
    """Bring an image to every running node: an archive as it is, or a name, fetched here first."""
    path = Path(image)
    if path.is_file():
        _import(cluster, path.resolve())
        return
    if image.endswith((".tar", ".tar.gz", ".tgz")):
        raise ClusterError(
            f"there is no file {image!r}", "give the path of an image archive, or the name of an image"
        )
    packages.require(packages.IMAGES)
    if not _exists(image):
        _buildah("pull", image)
    with tempfile.TemporaryDirectory(dir=cache()) as scratch:
        archive = Path(scratch) / "image.tar"
        _buildah("push", image, f"docker-archive:{archive}:{image}")
        _import(cluster, archive)


def _import(cluster: Cluster, archive: Path) -> None:
    def into(name: str) -> None:
        ctr = ["ctr", "-a", node.SOCKET, "-n", "k8s.io", "images", "import", "-"]
        with archive.open("rb") as stream:
            run([*node.enter(cluster, name), *ctr], stream=stream)

    names = [name for name in cluster.nodes if name not in cluster.stopped]
    with ThreadPoolExecutor() as pool:
        list(pool.map(into, names))
