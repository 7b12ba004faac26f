"""A policy server: simulators send observations, and one batched function call answers many of them."""

from callsheet.runtime.policy.client import Actions, PolicyClient, PolicyFailed, Ticket
from callsheet.runtime.policy.server import PolicyServer

__all__ = ["Actions", "PolicyClient", "PolicyFailed", "PolicyServer", "Ticket"]
