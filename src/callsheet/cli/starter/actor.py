"""An actor: plays a slot machine, reports the reward, gets the newest estimates back, and repeats until stopped.

It uses only the standard library. Its index and the learner's address are in its environment.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import sys
import time
from typing import TextIO

PAYS = [0.1, 0.3, 0.5, 0.8, 0.2]
EXPLORE = 0.1
GAME = 0.005
"""Seconds that one pull takes, as a real environment would."""


def connect(address: str, patience: float = 30.0) -> socket.socket:
    """Connect to the learner; retry, because processes start in any order."""
    host, port = address.rsplit(":", 1)
    limit = time.monotonic() + patience
    while True:
        try:
            return socket.create_connection((host, int(port)), timeout=10)
        except OSError:
            if time.monotonic() > limit:
                raise
            time.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    seed = parser.parse_args().seed
    # On SIGTERM, finish up and exit with 143: 0 would say that the work is done.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    luck = random.Random(seed)
    with connect(os.environ["CALLSHEET_TRAJECTORIES_ADDR"]) as learner:
        print(
            f"actor {os.environ['CALLSHEET_INDEX']} of {os.environ['CALLSHEET_REPLICAS']} has found the learner"
        )
        play(learner.makefile("rw"), luck)
    print("the learner has finished")


def play(stream: TextIO, luck: random.Random) -> None:
    """Play mostly the best machine so far, sometimes another one, until the learner closes the connection."""
    values = [0.0] * len(PAYS)
    try:
        while True:
            explore = luck.random() < EXPLORE
            arm = luck.randrange(len(PAYS)) if explore else values.index(max(values))
            time.sleep(GAME)
            reward = 1.0 if luck.random() < PAYS[arm] else 0.0
            stream.write(json.dumps({"arm": arm, "reward": reward}) + "\n")
            stream.flush()
            line = stream.readline()
            if not line:
                return
            values = json.loads(line)
    except ConnectionError:
        return


if __name__ == "__main__":
    main()
