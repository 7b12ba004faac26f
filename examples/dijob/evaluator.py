"""Walks the corridor without exploration and reports its return to the learner."""

from __future__ import annotations

import argparse
import random
import time

from corridor import Stop, ask_learner, play, rank


def main() -> None:
    """Evaluate until the learner is done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=20, help="episodes per evaluation")
    episodes = parser.parse_args().episodes
    stop = Stop()
    rng = random.Random(rank())
    answer = ask_learner({}, stop)
    rounds = 0
    while not answer["done"]:
        returns = [sum(step[2] for step in play(answer["table"], 0.0, rng)) for _ in range(episodes)]
        answer = ask_learner({"score": sum(returns) / episodes}, stop)
        rounds += 1
        time.sleep(0.05)
    print(f"evaluated {rounds} times")


if __name__ == "__main__":
    main()
