"""Converts DI-orchestrator's DIJob files, of either API version, into experiments."""

from callsheet.compat.dijob.convert import Converted, convert

__all__ = ["Converted", "convert"]
