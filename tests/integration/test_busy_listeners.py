"""A process that listens but is busy with something else: links wait for it, and then get memory all the same."""

from __future__ import annotations

import threading
import time

import pytest

from callsheet.runtime.context import Context
from callsheet.runtime.link import shm_handshake
from callsheet.runtime.link.endpoint_handler import EndpointHandler
from callsheet.runtime.link.link import Link, TimedOut
from callsheet.runtime.link.listener import Listener


def test_a_listener_that_turns_away_after_its_welcome_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shm_handshake, "_UPGRADE_GRACE", 0.0)
    with Context(addresses={"e": "127.0.0.1:0"}, plaintext=True, role="learner") as busy:
        listener = Listener(busy, "e", EndpointHandler("test"))
        with Context(addresses={"e": listener.address}, plaintext=True, role="actor") as context:
            link = Link(context, "e", "test")
            while not listener.peers:
                link.try_connect(0.01)
                listener.poll(0.01)
            begun = time.monotonic()
            with pytest.raises(TimedOut, match="is busy with something else"):
                link.connect(0.2)
            assert time.monotonic() - begun < 3
            while not link.try_connect(0.01):
                listener.poll(0.01)
            assert link.shared_memory
            link.close()
        listener.close()


def test_one_short_look_is_enough_to_welcome_a_link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        shm_handshake, "_UPGRADE_GRACE", 5.0
    )  # at most; a busy machine is slow to shake hands
    with Context(addresses={"e": "127.0.0.1:0"}, plaintext=True, role="learner") as busy:
        listener = Listener(busy, "e", EndpointHandler("test"))
        with Context(addresses={"e": listener.address}, plaintext=True, role="actor") as context:
            link = Link(context, "e", "test")
            thread = threading.Thread(target=link.connect, args=(10,))
            thread.start()
            while not listener.peers:
                listener.poll(0.001)  # returns when the one who was welcomed is in
            thread.join(10)
            assert link.shared_memory
            link.close()
        listener.close()
