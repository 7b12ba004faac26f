"""Walks the corridor by the learner's newest table, with some exploration, and sends every step back."""

from __future__ import annotations

import argparse
import os
import random

from corridor import Stop, ask_learner, nodes, play, rank


def main() -> None:
    """Collect until the learner is done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--explore", type=float, default=0.2, help="how often to try something else")
    explore = parser.parse_args().explore
    stop = Stop()
    peers = os.environ["DI_COLLECTOR_NODES"].split(",")
    print(f"collector {rank()} of {len(nodes())}, one of {len(peers)} collectors")
    rng = random.Random(rank())
    answer = ask_learner({}, stop)
    episodes = 0
    while not answer["done"]:
        answer = ask_learner({"episodes": [play(answer["table"], explore, rng)]}, stop)
        episodes += 1
    print(f"collected {episodes} episodes")


if __name__ == "__main__":
    main()
