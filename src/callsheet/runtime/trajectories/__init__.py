"""Rollouts from many writers to one or more readers: bounded, in order, exactly once."""

from callsheet.runtime.trajectories.batch import Batch
from callsheet.runtime.trajectories.reader import TrajectoryReader
from callsheet.runtime.trajectories.writer import TrajectoryWriter

__all__ = ["Batch", "TrajectoryReader", "TrajectoryWriter"]
