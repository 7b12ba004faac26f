"""Ray: a policy actor and actors that ask it, each with several requests under way.

`ray_policy.py CLIENTS SECONDS`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import numpy as np
import ray
from clients import OBSERVATION, PROCESSES, ask, summary
from payloads import report


def main(clients: int, seconds: float) -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    ray.init(
        num_cpus=PROCESSES + 1,
        include_dashboard=False,
        logging_level="ERROR",
        runtime_env={"env_vars": {"PYTHONPATH": here}},
    )

    @ray.remote(num_cpus=1, max_concurrency=16)
    class Policy:
        def act(self, observation: np.ndarray) -> np.ndarray:
            return (observation.sum(axis=1) > 0).astype("i8")

    @ray.remote(num_cpus=1)
    class Simulators:
        def run(self, policy: object, first: int, count: int) -> str:
            def make(number: int) -> Callable[[], None]:
                def request() -> None:
                    ray.get(policy.act.remote(OBSERVATION))  # type: ignore[attr-defined]

                return request

            return ask(make, first, count, seconds)

    policy = Policy.remote()
    each = clients // PROCESSES
    runs = [Simulators.remote().run.remote(policy, n * each, each) for n in range(PROCESSES)]
    report("Ray", clients=clients, **summary(ray.get(runs), seconds))
    ray.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
