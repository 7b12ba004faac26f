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


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_wait_that_a_signal_ends_exits_as_if_the_signal_had_ended_the_process(
    number: int, code: int
) -> None:
    def program() -> None:
        with Context(plaintext=True) as ctx:
            os.kill(os.getpid(), number)
            ctx.sleep(60)

    with pytest.raises(SystemExit) as ended:
        program()
    assert ended.value.code == code


def test_a_loop_that_looks_whether_it_should_stop_has_not_finished_either() -> None:
    def program() -> None:
        with Context(plaintext=True) as ctx:
            os.kill(os.getpid(), signal.SIGTERM)
            while not ctx.stopping:
                pass

    with pytest.raises(SystemExit) as ended:
        program()
    assert ended.value.code == 143


def test_what_has_declared_itself_done_ends_quietly() -> None:
    with Context(plaintext=True) as ctx:
        ctx.done()
        os.kill(os.getpid(), signal.SIGTERM)
        ctx.sleep(60)
    assert ctx.stopping


def test_a_program_that_stops_itself_ends_quietly() -> None:
    with Context(plaintext=True) as ctx:
        ctx.stop.set()
        ctx.sleep(60)


def test_an_error_after_the_signal_is_still_an_error() -> None:
    def program() -> None:
        with Context(plaintext=True):
            os.kill(os.getpid(), signal.SIGTERM)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        program()


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
