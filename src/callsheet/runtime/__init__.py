"""The library used inside a role: who am I, where are my peers, and how do we exchange data.

Names are imported on first use: a program that only writes trajectories does not load the replay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from callsheet import lazy

if TYPE_CHECKING:
    from callsheet.runtime.context import Context
    from callsheet.runtime.link.connector import Refused
    from callsheet.runtime.parameters.reader import ParameterReader
    from callsheet.runtime.parameters.server import ParameterServer
    from callsheet.runtime.policy.client import PolicyClient
    from callsheet.runtime.policy.server import PolicyServer
    from callsheet.runtime.replay.client.client import ReplayClient
    from callsheet.runtime.replay.server.server import ReplayServer
    from callsheet.runtime.schema import Schema
    from callsheet.runtime.stop import Stopping
    from callsheet.runtime.trajectories.reader import TrajectoryReader
    from callsheet.runtime.trajectories.writer import TrajectoryWriter

__all__ = [
    "Context",
    "ParameterReader",
    "ParameterServer",
    "PolicyClient",
    "PolicyServer",
    "Refused",
    "ReplayClient",
    "ReplayServer",
    "Schema",
    "Stopping",
    "TrajectoryReader",
    "TrajectoryWriter",
]

_HOMES = {
    "Context": "context",
    "ParameterReader": "parameters.reader",
    "ParameterServer": "parameters.server",
    "PolicyClient": "policy.client",
    "PolicyServer": "policy.server",
    "Refused": "link.connector",
    "ReplayClient": "replay.client.client",
    "ReplayServer": "replay.server.server",
    "Schema": "schema",
    "Stopping": "stop",
    "TrajectoryReader": "trajectories.reader",
    "TrajectoryWriter": "trajectories.writer",
}

__getattr__, __dir__ = lazy.names(__name__, _HOMES)
