"""Container images: built from `images/Dockerfile` without Docker, and brought to the nodes."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.cluster import node, packages, pypi, registry
from tools.cluster.errors import ClusterError
from tools.cluster.shell import run, say
from tools.cluster.state import Cluster
from tools.cluster.versions import DEBIAN, HERE, cache

REPOSITORY = HERE.parent.parent
DOCKERFILE = REPOSITORY / "images" / "Dockerfile"
PYTHON = "3.11"
KEEP_IMAGES = 5
KEEP_WHEELS = 3
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


def project_image() -> str:
    """The image of this checkout, built when its sources have changed; its name without the registry."""
    packages.require(packages.IMAGES)
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "images.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another command is building an image: waiting for it ...")
            fcntl.flock(lock, fcntl.LOCK_EX)
        name = f"callsheet:{_source_hash()}"
        if not _exists(f"localhost/{name}"):
            base = base_image()
            begun = time.monotonic()
            say(f"building the image {name} ...")
            with tempfile.TemporaryDirectory(dir=cache()) as context:
                _collect_wheels(Path(context))
                options = (
                    "--isolation",
                    "chroot",
                    "--layers",
                    "--build-arg",
                    f"BASE={base}",
                    "--file",
                    DOCKERFILE,
                )
                _buildah("bud", *options, "--tag", name, context)
            _forget_old_images()
            say(f"image {name}: {time.monotonic() - begun:.0f} s")
    return name


def _forget_old_images() -> None:
    """Every change of the sources is a new image; only the newest are of use to anyone."""
    ours = [reference for reference in _images() if reference.startswith("localhost/callsheet:")]
    if len(ours) > KEEP_IMAGES:
        _buildah("rmi", *ours[KEEP_IMAGES:])
        _buildah("rmi", "--prune")


def _source_hash() -> str:
    sources = sorted((REPOSITORY / "src").rglob("*"))
    ours = [path for path in sources if path.is_file() and "__pycache__" not in path.parts]
    return _hash_of([DOCKERFILE, REPOSITORY / "pyproject.toml", REPOSITORY / "constraints.txt", *ours])


def _hash_of(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        digest.update(str(path.relative_to(REPOSITORY)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def _collect_wheels(context: Path) -> None:
    """This project's wheel and those it needs, fetched here, so that the build itself needs no network."""
    pip = pypi.pip()
    run([*pip, "wheel", "--no-deps", "--wheel-dir", context / "own", REPOSITORY])
    needed = _hash_of([REPOSITORY / "pyproject.toml", REPOSITORY / "constraints.txt"])
    kept = cache() / f"wheels-{needed}"
    if not kept.exists():
        own = next((context / "own").glob("callsheet-*.whl"))
        limits = ["--constraint", str(REPOSITORY / "constraints.txt")]
        target = ["--python-version", PYTHON, "--only-binary=:all:"]
        fresh = context / "fetched"
        run([*pip, "download", *target, *limits, "--dest", fresh, f"{own}[rl]"])
        (fresh / own.name).unlink(missing_ok=True)
        os.replace(fresh, kept)
    os.utime(kept)
    _forget_old_wheels()
    shutil.copytree(kept, context / "wheels")


def _forget_old_wheels() -> None:
    """Every change of the dependencies is another folder; checkouts with other dependencies have theirs."""
    folders = sorted(cache().glob("wheels-*"), key=lambda path: path.stat().st_mtime)
    for path in folders[:-KEEP_WHEELS]:
        shutil.rmtree(path)


def push_project_image(cluster: Cluster) -> str:
    """Build the image of this checkout, push it to the cluster's registry; the name that pods use."""
    name = project_image()
    quickly = ("--quiet", "--compression-format", "zstd", "--compression-level", "1", "--format", "oci")
    _buildah("push", "--tls-verify=false", *quickly, f"localhost/{name}", registry.push_target(cluster, name))
    return registry.reference(name)


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
