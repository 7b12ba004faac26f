"""Where a store is, as people write it: an address taken apart, and what to write instead of a wrong one."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from callsheet.errors import UserError, nearest

FORMS = "s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, file:///folder, or a folder's path"
REMOTE = ("s3", "gs", "az")
_ALIASES = {
    "s3a": "s3",
    "s3n": "s3",
    "aws": "s3",
    "gcs": "gs",
    "google": "gs",
    "azure": "az",
    "abfs": "az",
    "abfss": "az",
    "wasb": "az",
    "adl": "az",
}
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]")


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """An address of which each part is known to be usable."""

    scheme: str
    bucket: str
    """Empty for files."""
    prefix: str
    """Inside the bucket, without slashes at its ends; for files the folder's absolute path."""

    @property
    def root(self) -> StoreAddress:
        """The whole bucket; for files the folder itself."""
        return self if self.scheme == "file" else StoreAddress(self.scheme, self.bucket, "")

    @property
    def url(self) -> str:
        """The address in its one form."""
        if self.scheme == "file":
            return Path(self.prefix).as_uri()
        return f"{self.scheme}://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")


def parse(text: str) -> StoreAddress:
    """Take an address apart; a plain path is a folder of this machine."""
    scheme, mark, rest = text.partition(":/")
    if not mark or not scheme.isalnum():
        return _folder(text)
    if scheme == "file":
        return _file(text)
    if scheme not in REMOTE:
        raise UserError(f"{_redact(text)!r} is no address of a store", fix=_suggest(scheme, rest, text))
    parts = urlsplit(text)
    if not rest.startswith("/") or not parts.netloc:
        raise UserError(
            f"{text!r} names no bucket", fix=f"write {scheme}://{rest.strip('/') or 'bucket/prefix'}"
        )
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise UserError(
            f"{_redact(text)!r} carries more than a bucket and a prefix",
            fix="keep keys and signatures out of addresses: each cloud's own variables carry them",
        )
    if not _BUCKET.fullmatch(parts.netloc):
        raise UserError(
            f"{parts.netloc!r} cannot be the name of a bucket",
            fix="those have 3 to 63 small letters, digits, dots and dashes",
        )
    prefix = parts.path.strip("/")
    if any(part in ("", ".", "..") for part in prefix.split("/")) and prefix:
        raise UserError(f"{text!r} has an empty part, . or ..", fix="write each part of the prefix once")
    return StoreAddress(scheme, parts.netloc, prefix)


def _folder(text: str) -> StoreAddress:
    if not text.strip():
        raise UserError("the address of the store is empty", fix=f"write {FORMS}")
    return StoreAddress("file", "", os.path.abspath(os.path.expanduser(text)))


def _file(text: str) -> StoreAddress:
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost"):
        rest = text.partition("://")[2]
        raise UserError(f"{text!r} has no absolute path", fix=f"write file:///{rest}")
    path = unquote(parts.path + (quote("?" + parts.query) if parts.query else ""))
    if not path.startswith("/") or "\0" in path:
        raise UserError(f"{text!r} has no absolute path", fix="write file:/// and the path")
    return StoreAddress("file", "", os.path.normpath(path))


def _suggest(scheme: str, rest: str, text: str) -> str:
    rest = rest.lstrip("/")
    lower = scheme.lower()
    if scheme == "pvc":
        return "pvc:// is for the experiment's file: a process finds its folder in CALLSHEET_STORAGE"
    if lower in ("http", "https"):
        host, _, path = rest.partition("/")
        found = re.fullmatch(r"([\w.-]+)\.s3[\w.-]*\.amazonaws\.com", host)
        if found:
            return f"did you mean s3://{found[1]}/{path}?".replace("/?", "?")
        return "write s3://bucket/prefix, and the server's own address into AWS_ENDPOINT_URL"
    close = nearest(lower, [*REMOTE, "file", *_ALIASES], cutoff=0.5)
    if lower in _ALIASES or close:
        right = _ALIASES.get(lower) or _ALIASES.get(close, close)
        return f"did you mean {right}://{'/' if right == 'file' else ''}{_redact(rest)}?"
    return f"write {FORMS}"


def _redact(text: str) -> str:
    """Without what could be a password or a signature."""
    return re.sub(r"(^|//)[^/@]*@", r"\1...@", re.sub(r"[?#].*", "", text))
