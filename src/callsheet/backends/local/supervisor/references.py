"""Secrets and ConfigMaps on a laptop: folders with one file per key, read when a container starts.

``.callsheet/secrets/NAME/KEY`` and ``.callsheet/configmaps/NAME/KEY`` below the working directory. The values are
only in the environment of processes, never in a plan, status or log.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable

from callsheet.plan.model import EnvRef

FOLDERS = {"secret": "secrets", "configmap": "configmaps"}


def folder(workdir: str, source: str, name: str) -> str:
    """The folder that stands for a Secret or ConfigMap."""
    return os.path.join(workdir, ".callsheet", FOLDERS[source], name)


def resolve_references(refs: Iterable[EnvRef], workdir: str) -> dict[str, str]:
    """The values of referenced variables; optional ones may be missing."""
    env: dict[str, str] = {}
    for ref in refs:
        base = folder(workdir, ref.source, ref.name)
        try:
            keys = [ref.key] if ref.key else sorted(k for k in os.listdir(base) if not k.startswith("."))
            for key in keys:
                env[ref.variable if ref.key else ref.variable + key] = _read(os.path.join(base, key))
        except FileNotFoundError:
            if not ref.optional:
                raise
    return env


def _read(path: str) -> str:
    with open(path, "rb") as file:
        data = file.read()
    try:
        return data.decode().removesuffix("\n")
    except UnicodeDecodeError:
        raise OSError(errno.EILSEQ, "not text in UTF-8, as a variable must be", path) from None
