"""The one kind of error that the tool shows to a person: what went wrong, and what to do."""

from __future__ import annotations


class ClusterError(Exception):
    """One sentence with the cause, then the next step."""

    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.message}\n  fix: {self.fix}" if self.fix else self.message
