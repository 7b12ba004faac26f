"""Ports for programs that are started a moment later, or again."""

from tools.faults.waiting import free_address, free_ports

__all__ = ["free_address", "free_ports"]
