"""The exception tree, by what the reader should do: correct the input, try again, or report a bug.

An error's text is one sentence with the offending value and the cause; ``fix`` is the next step.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


class CallsheetError(Exception):
    """Anything Callsheet raises on purpose."""

    exit_code = 1

    def __init__(self, message: str, *, fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.message}\n  fix: {self.fix}" if self.fix else self.message


class UserError(CallsheetError):
    """The user's mistake: the same call fails again until the input changes."""

    exit_code = 2


class NoSuchProgram(UserError):
    """A command to run beside a replica that is not there; the exit code is a shell's."""

    exit_code = 127


class Misconfigured(UserError):
    """What a role was asked to do does not fit what it has: a restart cannot help."""


class RetryError(CallsheetError):
    """Something outside was not there in time; the same call may succeed later."""


class BugError(CallsheetError):
    """Callsheet broke its own promise; worth a report."""

    exit_code = 70


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in an experiment: where it stands, what was found, what to write instead."""

    path: str
    """In the experiment's words: ``spec.roles[actor].connects[0]``."""
    message: str
    fix: str = ""
    file: str = ""
    line: int = 0
    column: int = 0

    @property
    def place(self) -> str:
        """``file:line:column``, as editors and terminals link it; the flag itself for what came from the command
        line; empty when the experiment came from Python."""
        return f"{self.file}:{self.line}:{self.column}" if self.file and self.line else self.file

    def __str__(self) -> str:
        text = ": ".join(part for part in (self.place, self.path, self.message) if part)
        return f"{text}\n    fix: {self.fix}" if self.fix else text


class InvalidExperiment(UserError):
    """An experiment with mistakes: all of them."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = sorted(problems, key=lambda p: (p.file, p.line, p.column))
        count = "1 mistake" if len(problems) == 1 else f"{len(problems)} mistakes"
        super().__init__(f"{count} in the experiment")

    def __str__(self) -> str:
        return "\n".join([*(str(p) for p in self.problems), self.message])


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "", *, cutoff: float = 0.6) -> str:
    """A fix for a misspelled name, in any case; `otherwise` if no known name comes near."""
    by_lower = {name.lower(): name for name in known}
    near = nearest(word.lower(), by_lower, cutoff=cutoff)
    return f"did you mean {by_lower[near]}?" if near else otherwise


def nearest(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """The known name that comes nearest; empty if none does."""
    from difflib import get_close_matches  # slow to import, and seldom needed

    return next(iter(get_close_matches(word, list(known), n=1, cutoff=cutoff)), "")
