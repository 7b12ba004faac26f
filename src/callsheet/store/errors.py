"""Storage errors, grouped by what to do about them. Messages name the place and never a secret."""

from __future__ import annotations

import errno
import re

from callsheet.errors import CallsheetError, RetryError, UserError


class NotFound(UserError):
    """There is no object with this key."""


class NoBucket(UserError):
    """The bucket or container does not exist."""


class NoCredentials(UserError):
    """There are no credentials."""


class Denied(UserError):
    """The credentials do not allow this."""


class WrongCredentials(Denied):
    """The credentials are not accepted at all."""


class Unreachable(RetryError):
    """The server did not answer, or said that it cannot at the moment."""


class DiskFull(RetryError):
    """The disk is full."""


class BadSet(CallsheetError):
    """A set whose manifest or content is damaged, or that another program wrote."""


class Fenced(CallsheetError):
    """Another writer has taken over: this one must stop."""


_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>|\"code\"\s*:\s*\"(\w+)\"")
_BUSY = (408, 429, 500, 502, 503, 504)
_MISSING_BUCKET = ("NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist")
_WRONG_KEYS = (
    "SignatureDoesNotMatch",
    "InvalidAccessKeyId",
    "AuthenticationFailed",
    "InvalidToken",
    "Unauth",
)
_LOST_UPLOAD = ("NoSuchUpload", "InvalidPart", "InvalidPartOrder")
"""A killed server may have forgotten parts of an upload; starting over helps."""
_METADATA = ("169.254.169.254", "169.254.170.2", "metadata.google.internal", "fd00:ec2::254")
_KEYS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile made by `aws configure`",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS, or run `gcloud auth application-default login`",
    "az": "AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN, or AZURE_USE_AZURE_CLI=true after `az login`",
}


def no_credentials(url: str) -> NoCredentials:
    """The error for an address without credentials in the environment or home folder."""
    scheme = url.partition(":")[0]
    return NoCredentials(f"there are no credentials for {url}", fix=f"set {_KEYS[scheme]}")


def explain(error: Exception, url: str, endpoint: str = "") -> CallsheetError:
    """Translate a failed request to an object store; `url` is that of the object or store."""
    text = str(error)
    scheme = url.partition(":")[0]
    bucket = "/".join(url.split("/", 3)[:3])
    where = f" at {endpoint}" if endpoint else ""
    if isinstance(error, CallsheetError):
        return error
    if any(word in text for word in _MISSING_BUCKET):
        return NoBucket(f"there is no {bucket}{where}", fix="create it first, or correct the name")
    if any(f"<Code>{code}</Code>" in text for code in _LOST_UPLOAD):
        return Unreachable(f"{bucket}{where} lost part of an upload", fix="try again")
    if isinstance(error, FileNotFoundError):
        return NotFound(f"there is no {url}", fix="check the name")
    if any(address in text for address in _METADATA):
        return no_credentials(url)
    code = _code(text)
    named = f" ({code})" if code else ""
    if "Expired" in code:
        return WrongCredentials(f"the credentials for {bucket} have expired", fix="sign in again")
    if "TimeTooSkewed" in code:
        return WrongCredentials(
            f"{bucket} rejects requests because this machine's clock is wrong", fix="set the clock"
        )
    if any(word in text for word in _WRONG_KEYS) or type(error).__name__ == "UnauthenticatedError":
        return WrongCredentials(
            f"{bucket}{where} does not accept the credentials{named}", fix=f"check {_KEYS[scheme]}"
        )
    if type(error).__name__ == "PermissionDeniedError":
        return Denied(f"the credentials do not allow this for {url}{named}", fix="ask its owner for access")
    status = _STATUS.search(text)
    if status and int(status[1]) in _BUSY:
        return Unreachable(
            f"{bucket}{where} cannot answer at the moment: {status[1]}{named}", fix="try again later"
        )
    if "redirect" in text.lower():
        return UserError(f"{bucket} is in another region", fix="set AWS_REGION to the bucket's region")
    if status is None and ("HTTP error" in text or isinstance(error, TimeoutError)):
        kind = "did not answer in time" if _is_timeout(error, text) else "cannot be reached"
        fix = f"check the network{' and that address' if endpoint else ''}, then try again"
        return Unreachable(f"{bucket}{where} {kind}", fix=fix)
    return CallsheetError(f"{url} failed: {_first_line(text)}", fix="check the server's log")


def explain_os(error: OSError, url: str) -> CallsheetError:
    """Translate a failed system call on a file."""
    why = (error.strerror or str(error)).lower()
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(
            f"there is no space left for {url}", fix="free some space on that disk, then try again"
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return Denied(f"no permission for {url}: {why}", fix="check the folder's owner and mode")
    if error.errno == errno.ENOENT:
        return NotFound(f"there is no {url}", fix="check the name")
    if error.errno in (errno.ENOTDIR, errno.EISDIR):
        return UserError(
            f"{url} is both a file and a folder: {why}", fix="choose another name: files cannot contain files"
        )
    if error.errno == errno.ENAMETOOLONG:
        return UserError(f"{url} is too long for a file name", fix="choose a shorter name")
    if error.errno == errno.EOPNOTSUPP:
        return UserError(
            f"the disk of {url} has no hard links, which a conditional put needs", fix="use another disk"
        )
    return RetryError(f"{url} failed: {why}", fix="check the disk, then try again")


def is_transient(error: Exception) -> bool:
    """Whether the same request may succeed in a moment."""
    return isinstance(explain(error, "s3://-"), Unreachable)


def _is_timeout(error: Exception, text: str) -> bool:
    return isinstance(error, TimeoutError) or "kind: Timeout" in text or "TimedOut" in text


def _code(text: str) -> str:
    match = _CODE.search(text)
    return (match[1] or match[2]) if match else ""


def _first_line(text: str) -> str:
    """The start of an error text, without the query of a URL: it may contain a signature."""
    return re.sub(r"\?\S+", "", text.partition("\n")[0])[:300]
