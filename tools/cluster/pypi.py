"""What comes from PyPI, fetched by a pip that may have to be made first: Debian's Python has none of its own."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path

from tools.cluster import packages
from tools.cluster.shell import run, say
from tools.cluster.versions import cache


def pip() -> list[str]:
    """The words that run pip: this Python's own, or that of an environment in the cache."""
    if importlib.util.find_spec("pip"):
        return _quiet(sys.executable)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    home = cache() / f"pip-{version}"
    if not home.exists():
        if not importlib.util.find_spec("ensurepip"):
            packages.require({"python3-venv": f"/usr/lib/python{version}/ensurepip"})
        say(f"making an environment with pip ({sys.executable} has none)")
        fresh = _emptied(home.with_name(home.name + ".new"))
        run([sys.executable, "-m", "venv", fresh])
        os.replace(fresh, home)
    return _quiet(str(home / "bin" / "python"))


def fetch(requirement: str, home: Path) -> None:
    """Unpack a package, and nothing that it needs, into a folder that is whole or absent."""
    fresh = _emptied(home.with_name(home.name + ".new"))
    run([*pip(), "install", "--no-deps", "--target", fresh, requirement])
    os.replace(fresh, _emptied(home))


def _quiet(python: str) -> list[str]:
    return [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]


def _emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    return folder
