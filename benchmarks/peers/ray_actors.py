"""Ray: actors that return rollouts as objects, four calls ahead each, and a driver that copies them into a batch.

`ray_actors.py PAYLOAD WRITERS SECONDS`.
"""

from __future__ import annotations

import os
import sys

import ray
from payloads import Batch, measure, rollout

AHEAD = 4


def main(payload: str, writers: int, seconds: float) -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    ray.init(
        num_cpus=max(4, writers),
        include_dashboard=False,
        logging_level="ERROR",
        object_store_memory=2 * 10**9,
        runtime_env={"env_vars": {"PYTHONPATH": here}},
    )

    @ray.remote(num_cpus=1)
    class Actor:
        def __init__(self) -> None:
            self.item = rollout(payload)

        def rollout(self) -> dict[str, object]:
            return self.item

    actors = [Actor.remote() for _ in range(writers)]
    flying = {actor.rollout.remote(): actor for actor in actors for _ in range(AHEAD)}
    batch = Batch(payload)

    def take() -> int:
        ready, _ = ray.wait(list(flying), num_returns=1)
        actor = flying.pop(ready[0])
        batch.put(ray.get(ready[0]))
        flying[actor.rollout.remote()] = actor
        return 1

    measure("Ray actors", payload, writers, seconds, take)
    ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
