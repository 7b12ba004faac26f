"""An image of one static program, written as the archive that containerd imports: no image builder is needed for it."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from pathlib import Path

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def write(target: Path, reference: str, files: dict[str, Path], entrypoint: list[str]) -> None:
    """One layer with the given files, all owned by root, and a configuration that starts the entry point."""
    layer = _layer(files)
    machine = platform.machine()
    config = {
        "architecture": _ARCHITECTURES.get(machine, machine),
        "os": "linux",
        "config": {"Entrypoint": entrypoint, "Env": ["PATH=/"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    described = json.dumps(config).encode()
    config_name = f"{hashlib.sha256(described).hexdigest()}.json"
    manifest = [{"Config": config_name, "RepoTags": [reference], "Layers": ["layer.tar"]}]
    with tarfile.open(target, "w") as archive:
        _add(archive, config_name, described, 0o644)
        _add(archive, "layer.tar", layer, 0o644)
        _add(archive, "manifest.json", json.dumps(manifest).encode(), 0o644)


def _layer(files: dict[str, Path]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as layer:
        for name, path in sorted(files.items()):
            _add(layer, name, path.read_bytes(), 0o755)
    return buffer.getvalue()


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))
