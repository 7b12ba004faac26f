"""Virtual environments of the peers, outside the tree: made once for each list of requirements."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def python_of(peer: str, *, install: bool) -> str | None:
    """The interpreter that can run a peer's scripts; None when it is not installed and should not be."""
    requirements = HERE / f"requirements-{peer}.txt"
    digest = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    folder = cache / "callsheet" / "peers" / f"{peer}-{digest}"
    python, done = folder / "bin" / "python", folder / ".done"
    if not done.exists():
        if not install:
            return None
        print(f"installing {peer} into {folder} ...", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "-r", requirements], check=True)
        done.touch()
    return str(python)


if __name__ == "__main__":
    for name in sys.argv[1:] or ["ray", "reverb", "grpc"]:
        print(python_of(name, install=True))
