"""Installed packages for the next checkout: some gigabytes are linked in a second instead of unpacked in a minute.

    python -m tools.packages take VENV      before pip: link what an earlier checkout installed for the same lists
    python -m tools.packages keep VENV      after pip: link it to a place that outlives this checkout

pip has the last word in any case: it installs what is missing. The kept files are those of the latest lists; they are
links, so they take room of their own only when no checkout has them any more. Where links cannot be made (another
file system), nothing is kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

from tools.cluster.versions import cache

ROOT = Path(__file__).parent.parent
KEPT = cache().parent
LISTS = ("pyproject.toml", "constraints.txt")
_OURS = ("callsheet", "__editable__")
_OF_ANY_VENV = ("python", "activate", "Activate", "pip", "callsheet")


def place() -> Path:
    """Where the packages of these lists are kept, for this Python."""
    digest = hashlib.sha256(f"{sys.version} {sys.platform}".encode())
    for name in LISTS:
        digest.update((ROOT / name).read_bytes())
    return KEPT / f"packages-{digest.hexdigest()[:16]}"


def keep(venv: Path) -> None:
    """Keep what is installed there, and forget what was kept for other lists."""
    kept = place()
    if kept.exists():
        return
    KEPT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=KEPT, prefix=".packages-") as scratch, contextlib.suppress(OSError):
        new = Path(scratch) / "new"
        for path in _packages(venv).iterdir():
            if not path.name.startswith(_OURS):
                _link(path, new / "packages" / path.name)
        for path in (venv / "bin").iterdir():
            if not path.name.startswith(_OF_ANY_VENV):
                _link(path, new / "bin" / path.name)
        (new / "from").write_text(str(venv.absolute()))
        for old in KEPT.glob("packages-*"):
            shutil.rmtree(old, ignore_errors=True)
        new.rename(kept)


def take(venv: Path) -> None:
    """Put into an environment what is kept for these lists, beside what it has already."""
    kept = place()
    if not kept.exists():
        return
    with contextlib.suppress(OSError):
        for path in (kept / "packages").iterdir():
            if not (to := _packages(venv) / path.name).exists():
                _link(path, to)
        there = (kept / "from").read_bytes()
        for path in (kept / "bin").iterdir():
            to = venv / "bin" / path.name
            with path.open("rb") as file:
                script = file.read(2) == b"#!"
            if to.exists():
                continue
            if script:  # its first line names the Python of the environment that it came from
                to.write_bytes(path.read_bytes().replace(there, os.fsencode(venv.absolute()), 1))
                to.chmod(path.stat().st_mode)
            else:
                _link(path, to)


def _packages(venv: Path) -> Path:
    return venv / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"


def _link(path: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        shutil.copytree(path, to, copy_function=os.link, symlinks=True)
    else:
        os.link(path, to)


if __name__ == "__main__":
    {"keep": keep, "take": take}[sys.argv[1]](Path(sys.argv[2]))
