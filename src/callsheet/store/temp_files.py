"""Temporary and lock files beside the objects, and how to recognize those of a killed writer.

A writer holds a lock on its temporary file, and the kernel drops it when the process dies. So age and clocks do not
matter: a file that can be locked is abandoned. On a disk without locks nothing is removed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import secrets
from collections.abc import Iterator

TEMP_SUFFIX = "~"
"""Suffix of names that are not objects."""
_MAX_ATTEMPTS = 5
_TEMPORARY = re.compile(rf"\.[0-9a-f]{{16}}\.tmp{TEMP_SUFFIX}")
_LOCK = re.compile(rf"\.([0-9a-f]{{16}})\.lock{TEMP_SUFFIX}")


@contextlib.contextmanager
def temporary_file(folder: str) -> Iterator[tuple[int, str]]:
    """A new file, open for writing, and its path. If it still has that name at the end, it is removed."""
    fd, path = _create(folder)
    try:
        yield fd, path
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)
        os.close(fd)


def _create(folder: str) -> tuple[int, str]:
    """Create the file; the folder may be removed as empty meanwhile, or the file swept before it is locked."""
    for _ in range(_MAX_ATTEMPTS):
        make_folders(folder)
        path = os.path.join(folder, f".{secrets.token_hex(8)}.tmp{TEMP_SUFFIX}")
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except FileNotFoundError:
            continue
        with contextlib.suppress(OSError):  # a disk without locks: nobody sweeps it either
            fcntl.flock(fd, fcntl.LOCK_EX)
        if os.fstat(fd).st_nlink:
            return fd, path
        os.close(fd)
    raise FileNotFoundError(errno.ENOENT, "the folder keeps being removed", folder)


def make_folders(folder: str) -> None:
    """Create a folder and its parents, each flushed to disk."""
    missing: list[str] = []
    while not os.path.isdir(folder):
        missing.append(folder)
        above = os.path.dirname(folder)
        if above == folder:
            break
        folder = above
    for path in reversed(missing):
        with contextlib.suppress(FileExistsError, FileNotFoundError):
            os.mkdir(path)
            sync_folder(os.path.dirname(path))
        if not os.path.isdir(path) and os.path.exists(path):
            raise NotADirectoryError(errno.ENOTDIR, "a file is in the way of a folder", path)


def sync_folder(folder: str) -> None:
    """Flush a folder's entries to disk; some network disks do not support this, and do it on their own."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EBADF, errno.ENOTSUP):
            raise
    finally:
        os.close(fd)


def write_all(fd: int, chunk: bytes | memoryview) -> None:
    """Write the whole chunk, in as many calls as it takes."""
    view = memoryview(chunk)
    while view:
        view = view[os.write(fd, view) :]


def lock_path(path: str) -> str:
    """The lock file for conditional replacement of an object."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{_name_hash(name)}.lock{TEMP_SUFFIX}")


def _name_hash(name: str) -> str:
    return hashlib.sha256(os.fsencode(name)).hexdigest()[:16]


@contextlib.contextmanager
def locked(path: str) -> Iterator[None]:
    """Hold the lock for replacing this object, across all machines that mount the disk."""
    lock = lock_path(path)
    while True:
        fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            try:
                current = os.stat(lock)
            except FileNotFoundError:
                continue  # the object was deleted, and its lock with it
            if os.path.samestat(current, os.fstat(fd)):
                yield
                return
        finally:
            os.close(fd)


def sweep_folder(folder: str) -> int:
    """Remove what killed writers left in this folder: temporary files, and locks without an object. Returns how many."""
    try:
        names = os.listdir(folder)
    except OSError:
        return 0
    candidates = [name for name in names if _TEMPORARY.fullmatch(name)]
    locks = {name: match[1] for name in names if (match := _LOCK.fullmatch(name))}
    if locks:
        objects = {_name_hash(name) for name in names if not name.endswith(TEMP_SUFFIX)}
        candidates += [name for name, short in locks.items() if short not in objects]
    return sum(_remove_abandoned(os.path.join(folder, name)) for name in candidates)


def _remove_abandoned(path: str) -> bool:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.stat(path), os.fstat(fd)):  # otherwise it was renamed before we got the lock
            os.unlink(path)
            return True
    except OSError:
        pass
    finally:
        os.close(fd)
    return False
