"""What the kubelet says instead of a log is not taken for one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from callsheet.backends.base import LogQuery
from callsheet.backends.kubernetes import names
from callsheet.backends.kubernetes.client.api import Api
from callsheet.backends.kubernetes.observe.logs import read_once

REMOVED = b"unable to retrieve container logs for containerd://86cf172f54b4d0579e31"
_FILE = b"/var/log/pods/team_exp-actor-3_ca2840de/actor/0.log"
REMOVING = (
    b'failed to try resolving symlinks in path "'
    + _FILE
    + b'": lstat '
    + _FILE
    + b": no such file or directory",
    b'failed to open log file "' + _FILE + b'": open ' + _FILE + b": no such file or directory",
)


class Logs:
    """An API server that knows logs alone."""

    def __init__(self, text: bytes) -> None:
        self.text = text

    def log(self, pod: str, params: dict[str, str]) -> Iterator[bytes]:
        yield self.text


def _read(text: bytes) -> tuple[list[str], set[tuple[str, int]]]:
    pod: dict[str, Any] = {
        "metadata": {
            "name": "exp-actor-3",
            "uid": "1",
            "labels": {names.ROLE: "actor", "apps.kubernetes.io/pod-index": "3"},
        },
        "status": {"containerStatuses": [{"name": "actor", "state": {"running": {}}}]},
    }
    gone: set[tuple[str, int]] = set()
    lines = [
        text for chunk in read_once(cast(Api, Logs(text)), [pod], LogQuery(), gone) for text in chunk.texts()
    ]
    return lines, gone


SAID = (REMOVED, *REMOVING)


@pytest.mark.parametrize("text", SAID)
def test_a_log_that_its_node_has_removed_is_gone_and_not_a_line(text: bytes) -> None:
    assert _read(text) == ([], {("actor", 3)})


@pytest.mark.parametrize("text", SAID)
def test_a_program_may_print_the_same_words(text: bytes) -> None:
    assert _read(text + b"\nand more\n") == ([text.decode(), "and more"], set())
