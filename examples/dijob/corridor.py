"""What the three programs share: the task, and how to reach the learner by DI's variables."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

PORT = 22270
LENGTH = 20
MAX_STEPS = 120
LEFT, RIGHT = 0, 1

Table = list[list[float]]
"""The value of each action at each place."""
Step = tuple[int, int, float, int]
"""Place, action, reward, next place; the next place is LENGTH at the end of the corridor."""


def rank() -> int:
    """Which of all processes of the job this is."""
    return int(os.environ["DI_RANK"])


def nodes() -> list[str]:
    """The hosts of all processes, by rank."""
    return os.environ["DI_NODES"].split(",")


def play(table: Table, explore: float, rng: random.Random) -> list[Step]:
    """Walk down a slippery corridor once. Every step costs a little; the far end pays 1."""
    steps: list[Step] = []
    place = 0
    while place < LENGTH and len(steps) < MAX_STEPS:
        values = table[place]
        best = LEFT if values[LEFT] > values[RIGHT] else RIGHT
        if values[LEFT] == values[RIGHT] or rng.random() < explore:
            best = rng.choice([LEFT, RIGHT])
        moved = place + (1 if best == RIGHT else -1) if rng.random() < 0.9 else place
        moved = max(moved, 0)
        steps.append((place, best, 1.0 if moved == LENGTH else -0.01, moved))
        place = moved
    return steps


class Stop:
    """Whether SIGTERM has arrived. An exception raised by the handler could get lost in a destructor."""

    def __init__(self) -> None:
        self.requested = False
        signal.signal(signal.SIGTERM, self._request)

    def _request(self, *_: Any) -> None:
        self.requested = True


def ask_learner(message: dict[str, Any], stop: Stop, timeout: float = 60.0) -> dict[str, Any]:
    """Send a message to the learner and return its answer; retry while it is unavailable."""
    host = os.environ["DI_LEARNER_NODES"].split(",")[0]
    body = json.dumps(message | {"rank": rank()}).encode()
    limit = time.monotonic() + timeout
    while not stop.requested:
        try:
            with urlopen(Request(f"http://{host}:{PORT}/", data=body), timeout=10) as answer:
                reply: dict[str, Any] = json.load(answer)
                return reply
        except (URLError, ConnectionError, TimeoutError) as error:
            if time.monotonic() > limit:
                raise SystemExit(f"no answer from the learner at {host}:{PORT}: {error}") from None
            time.sleep(0.1)
    sys.exit(143)
