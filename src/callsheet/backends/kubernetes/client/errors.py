"""The API server's errors as sentences: which right is missing, what the namespace lacks, what is wrong in the file."""

from __future__ import annotations

import re
from typing import Any

from callsheet.errors import CallsheetError, RetryError, UserError

_FORBIDDEN = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\S+) resource "(?P<resource>[^"]+)" in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]*)")?'
)
_QUOTA = re.compile(
    r"exceeded quota: (?P<name>[^,]+), requested: (?P<requested>.+?), used: (?P<used>.+?), limited: (?P<limit>.+)$"
)
_SECURITY = re.compile(r'violates PodSecurity "(?P<level>[^:"]+)[^"]*": (?P<why>.+)$')
_BUSY = (408, 429, 500, 502, 503, 504)
_IN_TEMPLATE = re.compile(r"spec\.template\.spec\.(?:initContainers|containers)\[\d+\]\.")


class ApiError(UserError):
    """The API server refused a request; `code` is the HTTP status."""

    def __init__(self, code: int, text: str, message: str, *, fix: str = "") -> None:
        super().__init__(message, fix=fix)
        self.code = code
        self.text = text
        """What the API server wrote."""


class Unreachable(RetryError):
    """The API server did not answer, or is too busy: try again."""


class StreamTimeout(Unreachable):
    """A response that had begun was silent for so long that its connection may be lost."""


def api_error(code: int, text: str, *, what: str, context: str) -> CallsheetError:
    """The error for a response of the API server; `what` was requested: "apply the Job tzmq-actor"."""
    place = f" of the context {context!r}" if context else ""
    if code == 401:
        return ApiError(
            code,
            text,
            f"the cluster{place} did not accept your credentials: they are wrong or have expired",
            fix="log in again with your cluster's own tool, or choose another context with --context",
        )
    if code == 403:
        return _forbidden(text, what)
    if code in _BUSY:
        return Unreachable(f"the cluster{place} could not {what} now: {_short(text)}", fix="try again")
    if code == 404 and "namespaces " in text:
        name = re.search(r'namespaces "([^"]+)"', text)
        shown = repr(name[1]) if name else "of that name"
        return ApiError(
            code,
            text,
            f"there is no namespace {shown} in the cluster{place}",
            fix="choose another one with -n, or create it",
        )
    return ApiError(code, text, f"the cluster refused to {what}: {with_file_paths(text)}")


def _forbidden(text: str, what: str) -> ApiError:
    words = explain_limit(text)
    if words:
        return ApiError(403, text, f"the cluster refused to {what}: {words}")
    denied = _FORBIDDEN.search(text)
    if not denied:
        return ApiError(403, text, f"the cluster refused to {what}: {_short(text)}")
    resource = denied["resource"] + (f".{denied['group']}" if denied["group"] else "")
    where = f" in the namespace {denied['namespace']!r}" if denied["namespace"] else " in the whole cluster"
    return ApiError(
        403,
        text,
        f"the right to {denied['verb']} {resource}{where} is missing; you are {denied['user']!r} there",
        fix=f"ask the cluster's owner for the verb {denied['verb']!r} on {resource!r}, or choose another context or namespace",
    )


def explain_limit(text: str) -> str:
    """The quota or security standard that blocks an object, as a sentence; empty if the text names neither."""
    quota = _QUOTA.search(text)
    if quota:
        return (
            f"the namespace's quota {quota['name']!r} allows {quota['limit']}, {quota['used']} is used and "
            f"{quota['requested']} more is requested"
        )
    security = _SECURITY.search(text)
    if security:
        return f"the namespace enforces the {security['level']!r} security standard: {security['why']}"
    return ""


def with_file_paths(text: str, role: str = "") -> str:
    """A validation message with the paths of the file instead of those of the rendered object."""
    where = f"spec.roles[{role}]." if role else ""
    return _IN_TEMPLATE.sub(where, _short(text)).replace("spec.template.spec.", where)


def is_immutable(error: ApiError) -> bool:
    """Whether only a new object could hold the change."""
    return error.code == 422 and ("immutable" in error.text or "updates to statefulset spec" in error.text)


def status_text(body: Any) -> str:
    """The message of the API server's Status object."""
    return str(body.get("message") or body) if isinstance(body, dict) else str(body)


def _short(text: str) -> str:
    return " ".join(text.split())[:400]
