"""The end of a context: closed once, twice, or forgotten, it gives its ports back and nothing hangs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

import numpy as np
import pytest

from callsheet.runtime import Context, ParameterServer, PolicyServer, ReplayServer, Schema, TrajectoryReader
from callsheet.runtime.replay import Table

SCHEMA = Schema.of({"x": np.float32(0)})

FORGOTTEN = """
import gc, socket, sys, threading
from callsheet.runtime.context import Context
from callsheet.runtime.keys import Keys
from callsheet.runtime.link.link import Link
from callsheet.runtime.link.listener import Listener
from callsheet.runtime.link.endpoint_handler import EndpointHandler

def forget() -> int:
    options = dict(keys=Keys(b"k" * 32), plaintext=sys.argv[1] == "plaintext", memory=False)
    here = Context(addresses={"e": "127.0.0.1:0"}, **options)
    listener = Listener(here, "e", EndpointHandler("test"))
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
    assert done.stderr.count("a Context was garbage-collected while open: use `with`, or call close()") == 2


@pytest.mark.parametrize(
    "make",
    [
        lambda context: TrajectoryReader(context, "e", SCHEMA),
        lambda context: ParameterServer(context, "e"),
        lambda context: PolicyServer(context, "e", dict, max_batch=1, schema_in=SCHEMA, schema_out=SCHEMA),
        lambda context: ReplayServer(context, "e", Table(items=8)),
    ],
)
def test_closing_twice_is_closing_once_and_hurts_nobody_else(
    make: Callable[[Context], TrajectoryReader],
) -> None:
    with Context(addresses={"e": "127.0.0.1:0"}, plaintext=True) as context, make(context) as server:
        server.close()
        context.close()
        others = [os.pipe() for _ in range(16)]  # takes the numbers that were free again
    for read, write in others:
        os.write(write, b"x")
        assert os.read(read, 1) == b"x"
        os.close(read)
        os.close(write)


def test_a_signal_after_the_end_does_not_write_into_somebody_elses_file() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    context = Context(plaintext=True)
    context.stop.install_handlers()
    thread = threading.Thread(target=context.close)  # only the main thread can give signals back
    thread.start()
    thread.join()
    others = [os.pipe() for _ in range(4)]
    os.kill(os.getpid(), signal.SIGINT)
    for read, write in others:
        os.set_blocking(read, False)
        with pytest.raises(BlockingIOError):
            os.read(read, 1)
        os.close(read)
        os.close(write)
    for number, handler in before.items():
        signal.signal(number, handler)
