"""Parameters: one process publishes versions of named arrays, many read the latest, always complete."""

from callsheet.runtime.parameters.reader import ParameterReader, Snapshot
from callsheet.runtime.parameters.server import ParameterServer

__all__ = ["ParameterReader", "ParameterServer", "Snapshot"]
