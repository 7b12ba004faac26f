"""Replay: items that are kept to be sampled again, by chance, by priority or in their order."""

from callsheet.runtime.replay.client import ReplayClient
from callsheet.runtime.replay.options import Table
from callsheet.runtime.replay.sample import Sample
from callsheet.runtime.replay.sequences import cut
from callsheet.runtime.replay.server import ReplayServer

__all__ = ["ReplayClient", "ReplayServer", "Sample", "Table", "cut"]
