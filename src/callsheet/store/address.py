"""Parses store addresses, and suggests what to write instead of a wrong one."""

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
    """A valid address, split into its parts."""

    scheme: str
    bucket: str
    """Empty for files."""
    prefix: str
    """Path inside the bucket, without leading or trailing slashes; for files, the folder's absolute path."""

    @property
    def root(self) -> StoreAddress:
        """The whole bucket; for files, the folder itself."""
        return self if self.scheme == "file" else StoreAddress(self.scheme, self.bucket, "")

    @property
    def url(self) -> str:
        """The address in canonical form."""
        if self.scheme == "file":
            return Path(self.prefix).as_uri()
        return f"{self.scheme}://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")


def parse(text: str) -> StoreAddress:
    """Parse an address; a plain path is a local folder."""
    scheme, mark, rest = text.partition(":/")
    if not mark or not scheme.isalnum():
        return _folder(text)
    if scheme == "file":
        return _file(text)
    if scheme not in REMOTE:
        raise UserError(f"{_redact(text)!r} is not a store address", fix=_suggest(scheme, rest, text))
    parts = urlsplit(text)
    if not rest.startswith("/") or not parts.netloc:
        raise UserError(
            f"{text!r} has no bucket", fix=f"write {scheme}://{rest.strip('/') or 'bucket/prefix'}"
        )
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise UserError(
            f"{_redact(text)!r} contains more than a bucket and a prefix",
            fix="pass keys and signatures in the cloud's own environment variables",
        )
    if not _BUCKET.fullmatch(parts.netloc):
        raise UserError(
            f"{parts.netloc!r} is not a valid bucket name",
            fix="use 3 to 63 lowercase letters, digits, dots and dashes",
        )
    prefix = parts.path.strip("/")
    if any(part in ("", ".", "..") for part in prefix.split("/")) and prefix:
        raise UserError(f"{text!r} has an empty part, . or ..", fix="remove it from the prefix")
    return StoreAddress(scheme, parts.netloc, prefix)


def _folder(text: str) -> StoreAddress:
    if not text.strip():
        raise UserError("the store address is empty", fix=f"write {FORMS}")
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
        return "pvc:// is only for the experiment file; a process finds its folder in CALLSHEET_STORAGE"
    if lower in ("http", "https"):
        host, _, path = rest.partition("/")
        match = re.fullmatch(r"([\w.-]+)\.s3[\w.-]*\.amazonaws\.com", host)
        if match:
            return f"did you mean s3://{match[1]}/{path}?".replace("/?", "?")
        return "write s3://bucket/prefix, and set AWS_ENDPOINT_URL to the server's address"
    close = nearest(lower, [*REMOTE, "file", *_ALIASES], cutoff=0.5)
    if lower in _ALIASES or close:
        right = _ALIASES.get(lower) or _ALIASES.get(close, close)
        return f"did you mean {right}://{'/' if right == 'file' else ''}{_redact(rest)}?"
    return f"write {FORMS}"


def _redact(text: str) -> str:
    """Remove what could be a password or a signature."""
    return re.sub(r"(^|//)[^/@]*@", r"\1...@", re.sub(r"[?#].*", "", text))
