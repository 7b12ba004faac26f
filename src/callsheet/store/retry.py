"""Timeouts and retries of requests, the same for every cloud store."""

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
"""Seconds for one attempt, plus the time for its bytes."""
MIN_BYTES_PER_SECOND = 50_000
"""A slower attempt counts as stuck."""
T = TypeVar("T")


@dataclass(frozen=True)
class RetryPolicy:
    """How long to retry when a server does not answer."""

    window: float
    """Seconds after the first failure during which a request is retried."""

    def attempt(self, size: int) -> float:
        """Timeout in seconds for one attempt to move `size` bytes."""
        return min(ATTEMPT_SECONDS, max(1.0, self.window)) + size / MIN_BYTES_PER_SECOND

    @property
    def backoff(self) -> dict[str, Any]:
        """The same backoff for obstore."""
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
        """Run `work`, and retry after transient failures; raises the last failure unchanged."""
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
                wait = backoff_seconds * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, so that clients do not retry in step
                if clock() + wait > last:
                    raise
                on_failure()
            await asyncio.sleep(wait)
