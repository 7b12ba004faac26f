"""A process that should stop: signals are heard while a context is open, and are the program's own again after it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from callsheet.runtime import Context, Stopping


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        assert signal.getsignal(number) == handler


def test_sigterm_ends_a_wait_and_the_block_quietly() -> None:
    with Context(plaintext=True) as ctx:
        os.kill(os.getpid(), signal.SIGTERM)
        ctx.sleep(60)
    assert ctx.stopping


def test_signals_are_the_programs_own_again_after_the_block() -> None:
    with Context(plaintext=True):
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


def test_contexts_may_end_in_any_order() -> None:
    first, second = Context(plaintext=True), Context(plaintext=True)
    first.__enter__()
    second.__enter__()
    first.close()
    os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(Stopping):
        second.stop.check()
    second.close()
