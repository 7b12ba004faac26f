"""A door for users of DI-orchestrator: a DIJob, of either API version, becomes an experiment file."""

from callsheet.compat.dijob.convert import Converted, convert

__all__ = ["Converted", "convert"]
