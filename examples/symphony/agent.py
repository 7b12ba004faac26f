"""The agent of the Symphony example: fetches parameters, tries variations of them, sends the experience back.

It finds the learner as Symphony's programs do, through SYMPH_<NAME>_ADDR.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys

import zmq

EPISODES = 16
NOISE = 0.1
ANSWER_MILLISECONDS = 2000
TRIES = 15


def connect(context: zmq.Context, service: str) -> zmq.Socket:
    """A socket for requests to one of the learner's services. Relaxed: it may repeat a request that got no answer."""
    socket = context.socket(zmq.REQ)
    socket.setsockopt(zmq.REQ_RELAXED, 1)
    socket.setsockopt(zmq.REQ_CORRELATE, 1)
    socket.linger = 0
    socket.connect(f"tcp://{os.environ[f'SYMPH_{service}_ADDR']}")
    return socket


def ask(socket: zmq.Socket, message: object) -> dict:
    """Ask the learner; retry if it is slow, and give up after a while."""
    for _ in range(TRIES):
        socket.send_json(message)
        if socket.poll(ANSWER_MILLISECONDS):
            return json.loads(socket.recv())
        print("the learner does not answer; asking again", flush=True)
    sys.exit(f"no answer from the learner for {TRIES * ANSWER_MILLISECONDS // 1000} s; giving up")


def episode(goal: list[float], numbers: list[float], rng: random.Random) -> dict:
    """Try a variation of the policy. The toy environment pays more the closer the numbers are to its goal."""
    noise = [rng.gauss(0, NOISE) for _ in numbers]
    tried = [number + change for number, change in zip(numbers, noise, strict=True)]
    return {"noise": noise, "return": -sum((g - t) ** 2 for g, t in zip(goal, tried, strict=True))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", required=True, help="name of the toy environment; it decides the goal")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    rng = random.Random(options.env)
    with (
        zmq.Context() as context,
        connect(context, "REPLAY_SERVER") as replay,
        connect(context, "PARAMETER_SERVER") as parameters,
    ):
        policy = ask(parameters, "parameters")
        goal = [rng.uniform(-1, 1) for _ in policy["numbers"]]
        while not policy["done"]:
            ask(replay, [episode(goal, policy["numbers"], rng) for _ in range(EPISODES)])
            policy = ask(parameters, "parameters")
    print(f"done at version {policy['version']}", flush=True)


if __name__ == "__main__":
    main()
