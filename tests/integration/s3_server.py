"""The tests' S3 servers: one that all share, and one of a test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.faults.s3server import BUCKET, SECRET, S3Server, serving

__all__ = ["BUCKET", "SECRET", "S3Server", "own_s3", "s3", "serving", "shared_s3"]


@pytest.fixture(scope="session")
def shared_s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """One server for all tests that leave it alone."""
    with serving(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def s3(shared_s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The shared server, which the test's own environment leads to."""
    for name, value in shared_s3.environment().items():
        monkeypatch.setenv(name, value)
    return shared_s3


@pytest.fixture
def own_s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """A server of the test's own, to be killed."""
    with serving(tmp_path / "s3") as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        yield server
