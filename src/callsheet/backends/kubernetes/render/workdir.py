"""The workdir as ConfigMaps: your code runs in any image, without a registry and without tools in the image.

The files are packed into immutable ConfigMaps named after the hash of their content, and combined in one projected,
read-only volume. `collect` reads the folder; packing and rendering are pure.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pathspec import GitIgnoreSpec

from callsheet.errors import InvalidExperiment, Problem

LARGEST_FOLDER = 8 * 1024 * 1024
"""Maximum bytes of the whole folder."""
LARGEST_CONFIG_MAP = 700 * 1024
"""Maximum bytes of one ConfigMap: the API server accepts 1 MiB, and binary files grow by a third."""
SECRETS = (
    *(".env*", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.ppk"),
    *("id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", ".ssh/", ".gnupg/"),
    *(".aws/", ".azure/", "**/.config/gcloud/", ".boto", ".s3cfg", ".kube/", "kubeconfig", "*.kubeconfig"),
    *("application_default_credentials.json", "service[-_]account*.json", "client_secret*.json"),
    *("credentials.json", ".git-credentials", ".netrc", "_netrc", ".docker/", ".dockercfg", "**/.config/gh/"),
    *(".pypirc", ".npmrc", ".pgpass", ".my.cnf", ".htpasswd", ".vault-token", ".kaggle/", ".huggingface/"),
)
"""Names of secrets: keys, and files in which programs keep passwords and tokens."""
EXCLUDED = (
    *SECRETS,
    ".git/",
    ".venv/",
    "venv/",
    "__pycache__/",
    "*.pyc",
    ".callsheet/",
    "runs/",
    ".mypy_cache/",
    ".pytest_cache/",
    ".ruff_cache/",
    "node_modules/",
    ".ipynb_checkpoints/",
)
"""Not copied unless `workdir.exclude` says "!name": secrets, version control, environments, caches, results."""
_SECRETS = GitIgnoreSpec.from_lines(SECRETS)


@dataclass(frozen=True, slots=True)
class CodeFile:
    """One file of the workdir."""

    data: bytes
    executable: bool = False


Folder = Mapping[str, CodeFile]
"""Files by path, with slashes, relative to the folder."""


def collect(folder: Path, exclude: list[str], withheld: list[str] | None = None) -> dict[str, CodeFile]:
    """Read a folder, without what git ignores, what must not be copied, and links out of the folder.

    `withheld` receives the paths that were excluded because they look like secrets: they may have been wanted."""
    if not folder.is_dir():
        raise _problem(
            f"there is no folder {str(folder)!r}", "set it to the folder of your code, relative to the file"
        )
    files: dict[str, CodeFile] = {}
    sizes: dict[str, int] = {}
    total = 0
    try:
        excluded = GitIgnoreSpec.from_lines([*EXCLUDED, *exclude])
        secrets: list[str] = []
        for path, entry in _walk(folder, "", excluded, [], secrets):
            with contextlib.suppress(FileNotFoundError):  # an editor's temporary file, already gone
                sizes[path] = entry.stat().st_size
                total += sizes[path]
                if total > 16 * LARGEST_FOLDER:
                    break  # far too much: enough to name the biggest files
                if total <= LARGEST_FOLDER:  # a folder of data sets is only measured, not read
                    files[path] = CodeFile(Path(entry.path).read_bytes(), os.access(entry.path, os.X_OK))
    except OSError as error:
        raise _problem(
            f"cannot read {str(error.filename)!r}: {error.strerror}",
            "exclude it with `workdir.exclude` or .gitignore, or fix its permissions",
        ) from None
    if total > LARGEST_FOLDER:
        biggest = sorted(sizes, key=lambda path: -sizes[path])[:3]
        shown = ", ".join(f"{path} ({sizes[path] / 1e6:.1f} MB)" for path in biggest)
        raise _problem(
            f"the folder {str(folder)!r} has {total / 1e6:.1f} MB, and at most {LARGEST_FOLDER / 1e6:.1f} MB can be copied; "
            f"the largest files: {shown}",
            "exclude them with `workdir.exclude` or .gitignore, put them on a volume, or build them into the image",
        )
    if withheld is not None:
        known = GitIgnoreSpec.from_lines(exclude)
        withheld += [path for path in secrets if not known.match_file(path)]
    return files


def _walk(
    root: Path,
    inside: str,
    excluded: GitIgnoreSpec,
    ignores: list[tuple[str, GitIgnoreSpec]],
    secrets: list[str],
) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """The files to copy, by their path inside the folder."""
    here = root / inside
    ignore_file = here / ".gitignore"
    if ignore_file.is_file():
        lines = ignore_file.read_text(encoding="utf-8", errors="replace").splitlines()
        ignores = [*ignores, (inside, GitIgnoreSpec.from_lines(lines))]
    for entry in sorted(os.scandir(here), key=lambda e: e.name):
        path = f"{inside}{entry.name}"
        folder = entry.is_dir(follow_symlinks=False)
        shown = f"{path}/" if folder else path
        if any(spec.match_file(shown[len(where) :]) for where, spec in ignores):
            continue
        if excluded.match_file(shown):
            if _SECRETS.match_file(shown):
                secrets.append(shown)
            continue
        if folder:
            yield from _walk(root, f"{path}/", excluded, ignores, secrets)
        elif entry.is_file() and Path(entry.path).resolve().is_relative_to(root.resolve()):
            yield path, entry


def _problem(message: str, fix: str) -> InvalidExperiment:
    return InvalidExperiment([Problem("spec.workdir.path", message, fix)])


@dataclass(frozen=True, slots=True)
class CodeConfigMap:
    """One of the ConfigMaps that hold the workdir."""

    name: str
    data: dict[str, str]
    binary: dict[str, str]
    items: tuple[dict[str, Any], ...]

    def manifest(self, labels: dict[str, str]) -> dict[str, Any]:
        """The ConfigMap."""
        content = {key: value for key, value in (("data", self.data), ("binaryData", self.binary)) if value}
        head = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": self.name, "labels": labels}}
        return head | {"immutable": True} | content

    def source(self) -> dict[str, Any]:
        """Its entry in the projected volume."""
        return {"configMap": {"name": self.name, "items": list(self.items)}}


def pack(experiment: str, folder: Folder) -> list[CodeConfigMap]:
    """Distribute the files over ConfigMaps, in the order of their paths."""
    shares: list[list[str]] = []
    size = LARGEST_CONFIG_MAP
    for path in sorted(folder):
        length = len(folder[path].data)
        if length > LARGEST_CONFIG_MAP:
            raise _problem(
                f"{path!r} has {length / 1e6:.1f} MB, and one file may have at most {LARGEST_CONFIG_MAP / 1e6:.1f} MB",
                "exclude it with `workdir.exclude`, put it on a volume, or build it into the image",
            )
        if size + length > LARGEST_CONFIG_MAP:
            shares.append([])
            size = 0
        shares[-1].append(path)
        size += length
    return [_config_map(experiment, share, folder) for share in shares]


def _config_map(experiment: str, paths: list[str], folder: Folder) -> CodeConfigMap:
    data: dict[str, str] = {}
    binary: dict[str, str] = {}
    items = []
    for number, path in enumerate(paths):
        key = f"file-{number}"
        file = folder[path]
        try:
            data[key] = file.data.decode()
        except UnicodeDecodeError:
            binary[key] = base64.b64encode(file.data).decode()
        items.append({"key": key, "path": path, "mode": 0o555 if file.executable else 0o444})
    content = json.dumps([data, binary, items], sort_keys=True).encode()
    name = f"{experiment}-code-{hashlib.sha256(content).hexdigest()[:10]}"
    return CodeConfigMap(name, data, binary, tuple(items))
