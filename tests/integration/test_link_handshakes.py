"""Handshakes that fail although the key is right: something on the way accepts connections and ends them."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

from callsheet.runtime import Context, ParameterReader, ParameterServer
from callsheet.runtime.keys import Keys
from callsheet.runtime.link.link import TimedOut
from tools.faults.proxy import PASS, Script, TcpProxy


def encrypted(address: str, role: str) -> Context:
    return Context(addresses={"p": address}, keys=Keys(b"k" * 32), memory=False, role=role)


@pytest.mark.parametrize("met_before", [True, False])
def test_a_proxy_that_ends_connections_for_a_while_is_not_taken_for_a_wrong_key(met_before: bool) -> None:
    """As a port-forward does, or a load balancer, while the process behind it is away."""
    with (
        encrypted("127.0.0.1:0", "learner") as there,
        ParameterServer(there, "p") as server,
        TcpProxy(server.address) as proxy,
        encrypted(proxy.address, "actor") as here,
        ParameterReader(here, "p") as reader,
    ):
        server.publish(1, {"w": np.zeros(3)})
        if met_before:
            assert reader.wait(timeout=20).version == 1
        proxy.follow(Script(refuse=True))
        while proxy.done["refused"] < 8:
            with contextlib.suppress(TimedOut):
                reader.wait(timeout=2)
        proxy.follow(PASS)
        server.publish(2, {"w": np.ones(3)})
        assert reader.wait(timeout=20).version == 2
