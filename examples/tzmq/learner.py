"""A toy learner: collects trajectories from actors and answers each with the version of its model.

Actors ask, the learner answers (ZeroMQ REQ/REP, one JSON object each way). An actor that got no answer in time
sends the same trajectory again, so each carries a sequence number and is counted once.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time

import zmq

TRAJECTORIES_PER_MODEL = 100
FAREWELL_SECONDS = 1.0


class Learner:
    """What has been learned: how many trajectories, and from whom."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.collected = 0
        self.last_sequence: dict[str, int] = {}
        """By sender: a restarted actor has a new sender id, so its numbers start over."""
        self.notified: set[str] = set()
        self.started = time.monotonic()

    @property
    def done(self) -> bool:
        return self.collected >= self.steps

    def answer(self, message: dict) -> dict:
        """Count a trajectory, once, and answer with the model's version."""
        sender, sequence = message["sender"], message["sequence"]
        if not self.done and sequence > self.last_sequence.get(sender, -1):
            self.last_sequence[sender] = sequence
            self.collected += 1
            if self.collected % max(1, self.steps // 10) == 0:
                self.report()
        if self.done:
            self.notified.add(sender)
        return {"model": self.collected // TRAJECTORIES_PER_MODEL, "done": self.done}

    def report(self) -> None:
        rate = self.collected / (time.monotonic() - self.started)
        print(
            f"collected {self.collected}/{self.steps} trajectories from {len(self.last_sequence)} actors, "
            f"{rate:.0f}/s, model {self.collected // TRAJECTORIES_PER_MODEL}",
            flush=True,
        )


def serve(learner: Learner, socket: zmq.Socket) -> None:
    """Answer until enough is collected, then a moment longer, so that every actor learns that it is done."""
    farewell = None
    while farewell is None or (
        time.monotonic() < farewell and learner.notified != set(learner.last_sequence)
    ):
        if socket.poll(timeout=100):
            socket.send_json(learner.answer(read(socket)))
        if learner.done and farewell is None:
            farewell = time.monotonic() + FAREWELL_SECONDS


def read(socket: zmq.Socket) -> dict:
    """The next trajectory. Other messages are answered with an error."""
    while True:
        try:
            message = json.loads(socket.recv())
            return {"sender": str(message["sender"]), "sequence": int(message["sequence"])}
        except (ValueError, KeyError, TypeError) as error:
            socket.send_json({"error": f"not a trajectory: {error!r}"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=10001, help="listen on this port of all addresses")
    parser.add_argument("--bind", metavar="HOST:PORT", help="listen here instead")
    parser.add_argument("--steps", type=int, default=3000, help="stop after this many trajectories")
    options = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: sys.exit(128 + number))

    address = f"tcp://{options.bind or f'*:{options.port}'}"
    with zmq.Context() as context, context.socket(zmq.REP) as socket:
        socket.linger = 1000  # the last answer still goes out
        try:
            socket.bind(address)
        except zmq.ZMQError as error:
            sys.exit(f"cannot listen on {address}: {error}")
        print(f"listening on {address}", flush=True)
        learner = Learner(options.steps)
        serve(learner, socket)
        print(f"enough after {time.monotonic() - learner.started:.1f} s", flush=True)


if __name__ == "__main__":
    main()
