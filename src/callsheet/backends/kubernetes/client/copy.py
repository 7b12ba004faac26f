"""Files to and from a replica's container: a tar stream through `exec`. The image needs `tar`."""

from __future__ import annotations

import io
import posixpath
import tarfile
import tempfile
from pathlib import Path

from callsheet.backends.kubernetes.client.api import Api, Object
from callsheet.backends.kubernetes.client.exec import exec_in_pod
from callsheet.errors import UserError


def copy_from(api: Api, pod: Object, container: str, source: str, target: Path) -> int:
    """Copy a file or folder here; returns the number of files. If the target is a folder, it goes inside."""
    folder, name = posixpath.split(source.rstrip("/"))
    with tempfile.TemporaryFile() as stream:
        _tar(api, pod, container, ["tar", "cf", "-", "-C", folder or ".", name], None, stream)
        stream.seek(0)
        with tarfile.open(fileobj=stream) as archive:
            into = target / name if target.is_dir() else target
            if not into.parent.is_dir():
                raise UserError(
                    f"there is no folder {str(into.parent)!r}", fix="create it, or choose another one"
                )
            return _unpack(archive, name, into)


def _unpack(archive: tarfile.TarFile, name: str, into: Path) -> int:
    files = 0
    for member in archive:
        inside = posixpath.relpath(member.name, name)
        if inside.startswith("../"):
            continue  # not below what was requested
        member.name = into.name if inside == "." else posixpath.join(into.name, inside)
        # The filter refuses links and paths that lead out of the folder.
        archive.extract(member, into.parent, filter="data")
        files += member.isfile()
    return files


def copy_to(api: Api, pod: Object, container: str, source: Path, target: str) -> int:
    """Copy a file or folder into the container; returns the number of files. If the target ends in /, it goes inside."""
    if not source.exists():
        raise UserError(f"there is no file or folder {str(source)!r}", fix="check the path")
    folder, name = posixpath.split(target)
    with tempfile.TemporaryFile() as stream:
        with tarfile.open(fileobj=stream, mode="w") as archive:
            archive.add(source, arcname=name or source.name, filter=_anonymous)
            files = sum(member.isfile() for member in archive.getmembers())
        stream.seek(0)
        _tar(api, pod, container, ["tar", "xmf", "-", "-C", folder or "."], stream, io.BytesIO())
    return files


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Users of this machine mean nothing in the container."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _tar(
    api: Api,
    pod: Object,
    container: str,
    command: list[str],
    source: io.BufferedRandom | None,
    output: io.BytesIO | io.BufferedRandom,
) -> None:
    complaints = io.BytesIO()
    try:
        code = exec_in_pod(api, pod, container, command, source=source, output={1: output, 2: complaints})
    except UserError as error:
        if "has no program" in error.message:
            raise UserError(
                "the container has no tar, which copying needs", fix="use an image that has it, or a volume"
            ) from None
        raise
    if code:
        lines = complaints.getvalue().decode(errors="replace").strip().splitlines()
        raise UserError(
            f"the copy failed in the container: {lines[0] if lines else f'tar ended with {code}'}",
            fix="check the path; only /tmp and volumes can be written by default",
        )
