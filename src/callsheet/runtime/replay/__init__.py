"""Replay: stores items and samples them uniformly, by priority or in order."""

from callsheet.runtime.replay.client.client import ReplayClient
from callsheet.runtime.replay.client.sampler import Sample
from callsheet.runtime.replay.client.sequences import cut
from callsheet.runtime.replay.config import Table
from callsheet.runtime.replay.server.server import ReplayServer

__all__ = ["ReplayClient", "ReplayServer", "Sample", "Table", "cut"]
