"""How long a request is given and how often it is repeated: one rule for every store in a cloud."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from callsheet.store.errors import is_transient

FIRST_BACKOFF = 0.1
MAX_BACKOFF = 5.0
ATTEMPT_SECONDS = 20.0
"""Seconds that one attempt may take, beside the time for its bytes."""
MIN_BYTES_PER_SECOND = 50_000
"""Bytes a second below which an attempt counts as stuck."""
T = TypeVar("T")


@dataclass(frozen=True)
class RetryPolicy:
    """How long it is worth waiting for a server that is not there."""

    window: float
    """Seconds after the first failure during which a request is repeated."""

    def attempt(self, size: int) -> float:
        """Seconds that one attempt to move so many bytes may take."""
        return min(ATTEMPT_SECONDS, max(1.0, self.window)) + size / MIN_BYTES_PER_SECOND

    @property
    def backoff(self) -> dict[str, Any]:
        """The same pauses for obstore."""
        return {
            "init_backoff": timedelta(seconds=FIRST_BACKOFF),
            "max_backoff": timedelta(seconds=MAX_BACKOFF),
            "base": 2,
        }

    async def run(
        self,
        work: Callable[[], Awaitable[T]],
        limit: float | None,
        on_failure: Callable[[], None] = lambda: None,
    ) -> T:
        """Do it, again after failures that may pass; the last failure is raised as it came."""
        clock = asyncio.get_running_loop().time
        last: float | None = None
        backoff_seconds = FIRST_BACKOFF
        while True:
            try:
                async with asyncio.timeout(limit):
                    return await work()
            except Exception as error:
                if not is_transient(error):
                    raise
                last = clock() + self.window if last is None else last
                backoff_seconds = min(2 * backoff_seconds, MAX_BACKOFF)
                wait = backoff_seconds * random.uniform(0.5, 1.0)  # noqa: S311 - keeps many clients from asking in step
                if clock() + wait > last:
                    raise
                on_failure()
            await asyncio.sleep(wait)
