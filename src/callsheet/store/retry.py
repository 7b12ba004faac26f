"""How long a request is given and how often it is repeated: one rule for every store in a cloud."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from callsheet.store.errors import is_passing

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0
ATTEMPT = 20.0
"""Seconds that one attempt may take, beside the time for its bytes."""
SLOWEST = 50_000
"""Bytes a second below which an attempt counts as stuck."""
T = TypeVar("T")


@dataclass(frozen=True)
class Patience:
    """How long it is worth waiting for a server that is not there."""

    window: float
    """Seconds after the first failure during which a request is repeated."""

    def attempt(self, size: int) -> float:
        """Seconds that one attempt to move so many bytes may take."""
        return min(ATTEMPT, max(1.0, self.window)) + size / SLOWEST

    @property
    def backoff(self) -> dict[str, Any]:
        """The same pauses for obstore."""
        return {
            "init_backoff": timedelta(seconds=FIRST_PAUSE),
            "max_backoff": timedelta(seconds=LONGEST_PAUSE),
            "base": 2,
        }

    async def persist(
        self,
        work: Callable[[], Awaitable[T]],
        limit: float | None,
        on_failure: Callable[[], None] = lambda: None,
    ) -> T:
        """Do it, again after failures that may pass; the last failure is raised as it came."""
        clock = asyncio.get_running_loop().time
        last: float | None = None
        pause = FIRST_PAUSE
        while True:
            try:
                async with asyncio.timeout(limit):
                    return await work()
            except Exception as error:
                if not is_passing(error):
                    raise
                last = clock() + self.window if last is None else last
                pause = min(2 * pause, LONGEST_PAUSE)
                wait = pause * random.uniform(0.5, 1.0)  # noqa: S311 - keeps many clients from asking in step
                if clock() + wait > last:
                    raise
                on_failure()
            await asyncio.sleep(wait)
