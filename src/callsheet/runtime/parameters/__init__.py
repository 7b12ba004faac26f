"""Parameters: one process publishes named arrays under growing versions, many read the latest, always a whole one."""

from callsheet.runtime.parameters.reader import ParameterReader, Snapshot
from callsheet.runtime.parameters.server import ParameterServer

__all__ = ["ParameterReader", "ParameterServer", "Snapshot"]
