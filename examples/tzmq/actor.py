"""A toy actor: sends trajectories to the learner and receives the version of the model.

It copes with a learner that is not there yet, dies, or comes back: a request that gets no answer in time is sent
again on a new connection. If the learner does not answer within --patience, the actor reports it and exits.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
import uuid

import zmq

ANSWER_SECONDS = 1.0


class LearnerGone(Exception):
    """The learner did not answer for too long."""


class Connection:
    """Requests to a learner that may go away and come back."""

    def __init__(self, context: zmq.Context, address: str, patience: float) -> None:
        self.context = context
        self.address = address
        self.patience = patience
        self.socket = self._connect()

    def _connect(self) -> zmq.Socket:
        socket = self.context.socket(zmq.REQ)
        socket.linger = 0
        try:
            socket.connect(f"tcp://{self.address}")
        except zmq.ZMQError as error:
            socket.close()
            sys.exit(f"--lrn_addr {self.address!r} is not a HOST:PORT address: {error}")
        return socket

    def ask(self, message: dict) -> dict:
        """Send a message until it is answered. A REQ socket cannot send twice, so each try has a new one."""
        give_up = time.monotonic() + self.patience
        tries = 0
        while True:
            self.socket.send_json(message)
            wait = min(ANSWER_SECONDS, max(0.0, give_up - time.monotonic()))
            if self.socket.poll(timeout=int(wait * 1000)):
                if tries:
                    print(f"the learner at {self.address} answers again", flush=True)
                return json.loads(self.socket.recv())
            if time.monotonic() >= give_up:
                raise LearnerGone(
                    f"no answer from the learner at {self.address} for {self.patience:g} s; giving up"
                )
            if not tries:
                print(f"no answer from the learner at {self.address}; trying again", flush=True)
            tries += 1
            self.socket.close()
            self.socket = self._connect()

    def close(self) -> None:
        self.socket.close()


def act(connection: Connection, task_index: str) -> None:
    """Send trajectories until the learner has enough."""
    sender = uuid.uuid4().hex
    sequence, model = 0, -1
    while True:
        trajectory = f"Trajectory {sequence} from task {task_index}"
        answer = connection.ask({"sender": sender, "sequence": sequence, "trajectory": trajectory})
        if "error" in answer:
            sys.exit(f"the learner refused: {answer['error']}")
        if answer["done"]:
            print(f"the learner has enough; sent {sequence + 1} trajectories", flush=True)
            return
        if answer["model"] // 5 != model // 5:
            print(f"task {task_index}: model {answer['model']} after {sequence + 1} trajectories", flush=True)
        model = answer["model"]
        sequence += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--lrn_addr", default="localhost:10001", metavar="HOST:PORT", help="where the learner is"
    )
    parser.add_argument("--task_index", default="0", help="which actor this is")
    parser.add_argument(
        "--patience", type=float, default=30.0, metavar="S", help="seconds to wait for the learner"
    )
    options = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: sys.exit(128 + number))

    with zmq.Context() as context:
        connection = Connection(context, options.lrn_addr, options.patience)
        try:
            act(connection, options.task_index)
        except LearnerGone as gone:
            sys.exit(str(gone))
        finally:
            connection.close()


if __name__ == "__main__":
    main()
