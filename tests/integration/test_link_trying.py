"""A link that is made in small steps, beside other work."""

from __future__ import annotations

import socket
import time

import pytest

from callsheet.runtime.context import Context
from callsheet.runtime.link.link import Link


@pytest.mark.exclusive
def test_a_peer_that_dies_before_its_welcome_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as dying:
        address = f"127.0.0.1:{dying.getsockname()[1]}"
        with Context(addresses={"e": address}, plaintext=True) as context:
            link = Link(context, "e", "test")
            link.try_connect(0.0)
            dying.accept()[0].close()
            begun = time.monotonic()
            while link._connector.in_progress:
                link.try_connect(0.0)
                assert time.monotonic() - begun < 2
                time.sleep(0.005)
            link.close()
