"""The end of a context: closed once, twice, or forgotten, it gives its ports back and nothing hangs."""

from __future__ import annotations

import subprocess
import sys

import pytest

FORGOTTEN = """
import gc, socket, sys, threading
from callsheet.runtime.context import Context
from callsheet.runtime.keys import Keys
from callsheet.runtime.link.link import Link
from callsheet.runtime.link.listener import Listener, Pattern

def forget() -> int:
    options = dict(keys=Keys(b"k" * 32), plaintext=sys.argv[1] == "plaintext", memory=False)
    here = Context(addresses={"e": "127.0.0.1:0"}, **options)
    listener = Listener(here, "e", Pattern("test"))
    link = Link(Context(addresses={"e": listener.address}, role="a", **options), "e", "test")
    while not link.try_connect():
        listener.poll(0.01)
    return int(listener.address.rpartition(":")[2])

port = forget()
gc.collect()
for thread in threading.enumerate():
    if thread.name == "callsheet-closing":
        thread.join()
with socket.create_server(("127.0.0.1", port)):
    print("free")
assert threading.active_count() == 1, threading.enumerate()
"""


@pytest.mark.parametrize("kind", ["plaintext", "encrypted"])
def test_a_context_that_is_forgotten_gives_its_port_back_and_says_so(kind: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", FORGOTTEN, kind], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "free\n", done.stderr
    assert done.stderr.count("a Context was dropped while it was open: use `with`, or close() it") == 2
