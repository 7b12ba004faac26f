"""The learner: collects the actors' rewards, improves its estimates, and sends them back to the actors.

It uses only the standard library. The address to listen on is in its environment.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import socket
from typing import TextIO

ARMS = 5


class Learner:
    """Running averages of what each slot machine paid."""

    def __init__(self) -> None:
        self.pulls = [0] * ARMS
        self.values = [0.0] * ARMS

    def learn(self, arm: int, reward: float) -> None:
        self.pulls[arm] += 1
        self.values[arm] += (reward - self.values[arm]) / self.pulls[arm]


def serve(learner: Learner, address: str, wanted: int) -> None:
    """Answer actors, any number of them, until there have been enough pulls."""
    host, port = address.rsplit(":", 1)
    listener = socket.create_server((host, int(port)))
    print(f"learning from {wanted} pulls, listening on {address}")
    with selectors.DefaultSelector() as ready, listener:
        ready.register(listener, selectors.EVENT_READ)
        while sum(learner.pulls) < wanted:
            for key, _ in ready.select():
                if key.fileobj is listener:
                    connection, _ = listener.accept()
                    ready.register(connection, selectors.EVENT_READ, connection.makefile("rw"))
                elif not answer(learner, key.data):
                    ready.unregister(key.fileobj)
                    key.data.close()


def answer(learner: Learner, stream: TextIO) -> bool:
    """Read one report of an actor and send back the estimates; False if the actor is gone."""
    try:
        line = stream.readline()
        if not line:
            return False
        report = json.loads(line)
        learner.learn(report["arm"], report["reward"])
        stream.write(json.dumps(learner.values) + "\n")
        stream.flush()
    except OSError:
        return False
    if sum(learner.pulls) % 500 == 0:
        print(f"{sum(learner.pulls)} pulls, estimates {[round(value, 2) for value in learner.values]}")
    return True


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pulls", type=int, default=2000)
    pulls = parser.parse_args().pulls
    learner = Learner()
    serve(learner, os.environ["CALLSHEET_TRAJECTORIES_BIND"], pulls)
    best = learner.values.index(max(learner.values))
    print(f"done: machine {best} pays best, about {learner.values[best]:.2f} a pull")


if __name__ == "__main__":
    main()
