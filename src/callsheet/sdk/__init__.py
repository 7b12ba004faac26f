"""The Python API: an experiment built call by call, equal to the file, and the handle of its run."""

from __future__ import annotations

from callsheet.backends.base import Run
from callsheet.sdk.experiment import Experiment
from callsheet.sdk.role import Container, Role

__all__ = ["Container", "Experiment", "Role", "Run"]
