"""A worker: races in its own simulator with the newest policy, and sends each episode to the learner."""

from __future__ import annotations

import argparse
import random
import signal
import sys

from wire import Connection


def race(sim: Connection, gain: float, seed: int) -> float:
    """One episode; the sum of its rewards."""
    seen = sim.ask({"reset": seed})
    total = 0.0
    while not seen["done"]:
        seen = sim.ask({"steer": -gain * seen["offset"]})
        total += seen["reward"]
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--learner", required=True, metavar="HOST:PORT")
    parser.add_argument("--sim", required=True, metavar="HOST:PORT")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    learner, sim = Connection(options.learner), Connection(options.sim)
    rng = random.Random(options.seed)
    policy = learner.ask({"hello": options.seed})
    while not policy["enough"]:
        gain = policy["gain"] + rng.gauss(0.0, 0.2)  # exploration
        reward = race(sim, gain, rng.randrange(1 << 30))
        policy = learner.ask({"gain": gain, "reward": reward, "policy": policy["version"]})
    print("the learner has enough", flush=True)


if __name__ == "__main__":
    main()
