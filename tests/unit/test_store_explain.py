"""What the answers of clouds mean, in a sentence: their own texts, as obstore hands them on."""

from __future__ import annotations

import errno

import pytest

from callsheet.errors import CallsheetError, RetryError, UserError
from callsheet.store import Denied, DiskFull, NoBucket, NoCredentials, NotFound, Unreachable, WrongCredentials
from callsheet.store.errors import explain, explain_os, is_transient


def answer(status: int, code: str) -> str:
    return f"Error performing PUT http://x - Server returned non-2xx status code: {status} Some: <Error><Code>{code}</Code></Error>"


class PermissionDeniedError(Exception):
    """Named as obstore names it."""


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (FileNotFoundError(answer(404, "NoSuchKey")), NotFound, "there is no s3://bucket/x"),
        (FileNotFoundError(answer(404, "NoSuchBucket")), NoBucket, "there is no s3://bucket"),
        (FileNotFoundError(answer(404, "ContainerNotFound")), NoBucket, "there is no s3://bucket"),
        (FileNotFoundError(answer(404, "NoSuchUpload")), Unreachable, "lost part of an upload"),
        (PermissionDeniedError(answer(403, "AccessDenied")), Denied, "do not allow this for s3://bucket/x"),
        (PermissionDeniedError(answer(403, "SignatureDoesNotMatch")), WrongCredentials, "does not accept"),
        (PermissionDeniedError(answer(403, "RequestTimeTooSkewed")), WrongCredentials, "clock"),
        (Exception(answer(400, "ExpiredToken")), WrongCredentials, "have expired"),
        (Exception(answer(503, "SlowDown")), Unreachable, "cannot answer at the moment: 503 (SlowDown)"),
        (Exception("Received redirect without LOCATION"), UserError, "another region"),
        (Exception("HTTP error: error sending request"), Unreachable, "cannot be reached"),
        (TimeoutError(), Unreachable, "did not answer in time"),
        (Exception("PUT http://169.254.169.254/latest/api/token"), NoCredentials, "no credentials"),
        (Exception("GET http://x/y?sig=hush-hush odd\nhush-hush"), CallsheetError, "GET http://x/y odd"),
    ],
)
def test_each_answer_has_its_meaning(error: Exception, kind: type[CallsheetError], said: str) -> None:
    found = explain(error, "s3://bucket/x")
    assert type(found) is kind
    assert said in found.message
    assert found.fix
    assert "hush-hush" not in str(found)


def test_only_what_may_pass_is_tried_again() -> None:
    assert is_transient(TimeoutError())
    assert is_transient(Exception(answer(500, "InternalError")))
    assert not is_transient(Exception(answer(400, "InvalidRequest")))
    assert not is_transient(PermissionDeniedError(answer(403, "AccessDenied")))


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, DiskFull),
        (errno.EDQUOT, DiskFull),
        (errno.EACCES, Denied),
        (errno.EROFS, Denied),
        (errno.ENOENT, NotFound),
        (errno.ENOTDIR, UserError),
        (errno.ENAMETOOLONG, UserError),
        (errno.EOPNOTSUPP, UserError),
        (errno.EIO, RetryError),
    ],
)
def test_each_failed_system_call_has_its_meaning(number: int, kind: type[CallsheetError]) -> None:
    found = explain_os(OSError(number, "why"), "file:///x")
    assert type(found) is kind
    assert "file:///x" in found.message
    assert found.fix
