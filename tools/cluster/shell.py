"""Running other programs and waiting for conditions, so that every failure names its cause."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from tools.cluster.errors import ClusterError


def run(
    argv: Sequence[str | Path],
    *,
    stdin: str | None = None,
    stream: IO[bytes] | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    check: bool = True,
) -> str:
    """The standard output of a program; its standard error becomes the error's text."""
    words = [str(word) for word in argv]
    done = subprocess.run(
        words,
        input=stdin,
        stdin=(stream or subprocess.DEVNULL) if stdin is None else None,
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    if check and done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()
        raise ClusterError(f"`{' '.join(words[:6])}` ended with {done.returncode}: {' / '.join(lines[-5:])}")
    return done.stdout


def wait_until(condition: Callable[[], bool], what: str, seconds: float, fix: str = "") -> None:
    """Return as soon as the condition holds; after the given time say what did not happen."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise ClusterError(f"waited {seconds:g} s for {what} in vain", fix)
        time.sleep(0.05)


def say(text: str) -> None:
    """Progress for a person: on standard error, at once."""
    print(text, file=sys.stderr, flush=True)
