"""The learner of the Symphony example: takes experience in, hands parameters out, shows its progress.

The "policy" is one number per joint. An agent reports how well perturbed numbers did; the learner moves its own
numbers toward those that did better than average (an evolution strategy), so the return visibly rises.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import zmq

JOINTS = 6
LEARNING_RATE = 0.2


class Policy:
    """The parameters and their history."""

    def __init__(self) -> None:
        self.numbers = [0.0] * JOINTS
        self.version = 0
        self.returns: list[float] = []

    def learn(self, episodes: list[dict]) -> None:
        """One update from a batch of episodes, each with the noise that was tried and the return that it had."""
        returns = [episode["return"] for episode in episodes]
        average = sum(returns) / len(returns)
        spread = (sum((r - average) ** 2 for r in returns) / len(returns)) ** 0.5 or 1.0
        for joint in range(JOINTS):
            gradient = sum((e["return"] - average) * e["noise"][joint] for e in episodes) / (
                len(episodes) * spread
            )
            self.numbers[joint] += LEARNING_RATE * gradient
        self.version += 1
        self.returns.append(average)


def bind(context: zmq.Context, endpoint: str) -> zmq.Socket:
    """A socket that answers requests on one of our endpoints."""
    socket = context.socket(zmq.REP)
    socket.linger = 1000
    socket.bind(f"tcp://{os.environ[f'CALLSHEET_{endpoint}_BIND']}")
    return socket


def show_progress(policy: Policy) -> None:
    """A page for people, where a Symphony user would have put TensorBoard."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            rows = "".join(f"<tr><td>{i + 1}<td>{value:.3f}" for i, value in enumerate(policy.returns))
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(f"<title>rl</title><table><tr><th>update<th>return{rows}</table>\n".encode())

        def log_message(self, *_: object) -> None:
            """Quiet."""

    host, _, port = os.environ["CALLSHEET_TENSORBOARD_BIND"].rpartition(":")
    server = ThreadingHTTPServer((host, int(port)), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"progress: http://{os.environ['SYMPH_TENSORBOARD_ADDR']}/", flush=True)


def serve(policy: Policy, replay: zmq.Socket, parameters: zmq.Socket, updates: int) -> None:
    """Answer both endpoints until training is done and the agent knows it."""
    poller = zmq.Poller()
    poller.register(replay, zmq.POLLIN)
    poller.register(parameters, zmq.POLLIN)
    done = False
    while not done:
        ready = dict(poller.poll())
        if replay in ready:
            episodes = json.loads(replay.recv())
            if policy.version < updates:
                policy.learn(episodes)
                if policy.version % (updates // 10 or 1) == 0:
                    print(f"update {policy.version}: return {policy.returns[-1]:.3f}", flush=True)
            replay.send_json({"received": len(episodes)})
        if parameters in ready:
            parameters.recv()
            done = policy.version >= updates
            parameters.send_json({"version": policy.version, "numbers": policy.numbers, "done": done})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=200, help="stop after this many updates")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    policy = Policy()
    with (
        zmq.Context() as context,
        bind(context, "REPLAY_SERVER") as replay,
        bind(context, "PARAMETER_SERVER") as parameters,
    ):
        show_progress(policy)
        serve(policy, replay, parameters, options.updates)
    print(f"learned: return {policy.returns[0]:.3f} -> {policy.returns[-1]:.3f}", flush=True)


if __name__ == "__main__":
    main()
