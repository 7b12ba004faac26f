"""The wheels that images are made of, fetched here, so that building an image needs no network."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from tools.cluster import pypi
from tools.cluster.shell import run
from tools.cluster.versions import HERE, cache

REPOSITORY = HERE.parent.parent
PYTHON = "3.11"
KEEP = 3
_PINS = REPOSITORY / "constraints.txt"


def collect(context: Path, *, torch: bool) -> dict[str, str]:
    """This project's wheel, those it needs and perhaps PyTorch's; what the Dockerfile is told about them."""
    pip = pypi.pip()
    run([*pip, "wheel", "--no-deps", "--wheel-dir", context / "own", REPOSITORY])
    needed = hash_of([REPOSITORY / "pyproject.toml", _PINS])
    kept = cache() / f"wheels-{needed}"
    if not kept.exists():
        own = next((context / "own").glob("callsheet-*.whl"))
        fresh = context / "fetched"
        _download(f"{own}[rl]", folder=fresh)
        (fresh / own.name).unlink(missing_ok=True)
        os.replace(fresh, kept)
    os.utime(kept)
    forget_old()
    shutil.copytree(kept, context / "wheels")
    if torch:  # not kept: three gigabytes that are seldom wanted
        _download("torch", "tensorboard", folder=context / "torch")
    return {folder.upper(): _word(context / folder) for folder in ("wheels", "torch")}


def _word(folder: Path) -> str:
    names = "\n".join(sorted(path.name for path in folder.glob("*.whl")))
    return hashlib.sha256(names.encode()).hexdigest()[:12]


def _download(*requirements: str, folder: Path) -> None:
    target = ("--python-version", PYTHON, "--only-binary=:all:")
    run([*pypi.pip(), "download", *target, "--constraint", _PINS, "--dest", folder, *requirements])


def forget_old() -> None:
    """Every change of the dependencies is another folder; checkouts with other dependencies have theirs."""
    folders = sorted(cache().glob("wheels-*"), key=lambda path: path.stat().st_mtime)
    for path in folders[:-KEEP]:
        shutil.rmtree(path)


def hash_of(files: list[Path]) -> str:
    """A word that changes with the names and the content of files of this checkout."""
    digest = hashlib.sha256()
    for path in files:
        digest.update(str(path.relative_to(REPOSITORY)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]
