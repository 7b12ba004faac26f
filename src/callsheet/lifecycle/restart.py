"""What happens when a replica ends. To add or change a restart rule, edit `after_exit`."""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace
from typing import Literal

from callsheet import contract

Policy = Literal["Always", "OnFailure", "Never"]
Cause = Literal["program", "disruption", "requested"]

FIRST_DELAY, LONGEST_DELAY = 0.25, 30.0
STEADY = 60.0
"""Seconds after which a process counts as healthy: its next restart comes after the first delay again."""
FATAL_CODES = (contract.EXIT_CONFIG,)
"""Exit codes that say a restart cannot help; they count under `OnFailure`."""


@dataclass(frozen=True, slots=True)
class RestartRules:
    """What the file says about the restarts of one role."""

    policy: Policy = "OnFailure"
    limit: int = 10

    @property
    def allowed(self) -> int:
        """Restarts after failures that one replica may use."""
        return 0 if self.policy == "Never" else self.limit


@dataclass(frozen=True, slots=True)
class Ended:
    """How a replica's main process ended."""

    code: int
    """As a shell shows it: 128 + n after signal n."""
    how: str = ""
    """For people; made from the code when empty."""
    lived: float = 0.0
    """Seconds for which it ran."""
    disrupted: bool = False
    """The platform took it away: an eviction, a preemption, a lost node."""
    requested: bool = False
    """Somebody asked for its end: `callsheet restart`, or a pod that was deleted."""

    def __str__(self) -> str:
        return self.how or describe_exit(self.code)


@dataclass(frozen=True, slots=True)
class Tally:
    """What a replica has used so far in this run."""

    failures: int = 0
    """Restarts after failures. They stay spent, whatever happens to the replica later."""
    quick: int = 0
    """Restarts since it last ran steadily; the delay grows with them."""


@dataclass(frozen=True, slots=True)
class Restart:
    """It starts again after `delay` seconds, with this tally."""

    delay: float
    tally: Tally
    why: str


@dataclass(frozen=True, slots=True)
class Finished:
    """It has succeeded."""


@dataclass(frozen=True, slots=True)
class Failed:
    """It has failed for good, and the run with it."""

    reason: str


def cause(ended: Ended) -> Cause:
    """Why it ended. Only what the program did itself can use up a budget or finish the replica."""
    if ended.disrupted:
        return "disruption"
    return "requested" if ended.requested else "program"


def after_exit(
    ended: Ended, rules: RestartRules, tally: Tally, budget_left: int | None
) -> Restart | Finished | Failed:
    """What comes after a replica's end. `budget_left`: restarts that the run may still use; None when unlimited."""
    why = cause(ended)
    if why == "requested":
        return Restart(0.0, tally, str(ended))
    if why == "disruption":
        again = _restart(ended, tally, str(ended))
        return again if again.tally.quick > 1 else replace(again, delay=0.0)
    if ended.code == 0:
        return _restart(ended, tally, str(ended)) if rules.policy == "Always" else Finished()
    if rules.policy == "Never":
        return Failed(f"{ended}; its restart policy is Never")
    if rules.policy == "OnFailure" and ended.code in FATAL_CODES:
        return Failed(f"{ended}; a restart cannot fix this: see its log")
    if tally.failures >= rules.limit:
        times = "once" if tally.failures == 1 else f"{tally.failures} times"
        return Failed(f"{ended}; it was restarted {times}, its limit")
    if budget_left is not None and budget_left <= 0:
        return Failed(f"{ended}; the run's budget of restarts (lifecycle.maxRestarts) is used up")
    spent = replace(tally, failures=tally.failures + 1)
    return _restart(ended, spent, f"{ended} (restart {spent.failures} of {rules.limit})")


def after_sidecar_exit(ended: Ended, tally: Tally) -> Restart:
    """What comes after the end of a container beside the main one, while that runs: it restarts, at no cost."""
    return _restart(ended, tally, str(ended))


def _restart(ended: Ended, tally: Tally, why: str) -> Restart:
    quick = 0 if ended.lived > STEADY else tally.quick
    delay = min(FIRST_DELAY * 2 ** min(quick, 10), LONGEST_DELAY)
    return Restart(delay, replace(tally, quick=quick + 1), why)


def describe_exit(code: int) -> str:
    """How a process ended, for people; minus n stands for signal n: ``exit code 3``, ``killed by SIGKILL``."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def shell_code(code: int) -> int:
    """The exit code a shell would show: 128 + n for signal n."""
    return code if code >= 0 else 128 - code
