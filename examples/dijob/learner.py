"""Learns the corridor from what the collectors send, and ends when the evaluation is good enough."""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from corridor import LENGTH, PORT, Stop, nodes, rank


class Learner:
    """A table of values, corrected by every step that comes in."""

    def __init__(self, goal: float) -> None:
        self.goal = goal
        self.table = [[0.0, 0.0] for _ in range(LENGTH)]
        self.episodes: dict[int, int] = {}
        self.score = float("-inf")
        self.notified: set[int] = set()
        self.lock = threading.Lock()
        self.finished = threading.Event()

    def take(self, message: dict[str, Any]) -> dict[str, Any]:
        """Learn from a message, and answer with the newest table."""
        sender = message["rank"]
        with self.lock:
            for episode in message.get("episodes", []):
                self.episodes[sender] = self.episodes.get(sender, 0) + 1
                self.learn(episode)
            if "score" in message:
                self.score = message["score"]
                print(f"return {self.score:.2f} after {sum(self.episodes.values())} episodes")
            return {"table": self.table, "done": self.score >= self.goal}

    def mark_notified(self, receiver: int) -> None:
        """Remember who knows that training is done; finish when everyone does."""
        with self.lock:
            self.notified.add(receiver)
            if len(self.notified) == len(nodes()) - 1:
                self.finished.set()

    def learn(self, episode: list[list[Any]]) -> None:
        """Q-learning, last step first, so that rewards propagate in one pass."""
        for place, action, reward, after in reversed(episode):
            ahead = max(self.table[after]) if after < LENGTH else 0.0
            self.table[place][action] += 0.1 * (reward + 0.99 * ahead - self.table[place][action])


def main() -> None:
    """Serve until everyone knows that training is done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--goal", type=float, default=0.7, help="end when the evaluator reports this return")
    learner = Learner(parser.parse_args().goal)
    stop = Stop()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = learner.take(message)
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            if answer["done"]:
                learner.mark_notified(message["rank"])

        def log_message(self, *_: Any) -> None:
            """Every message is too much for a log."""

    server = listen(Handler)
    print(f"{os.environ['DI_JOB_ID']}: learner {rank()} of {len(nodes())} listens")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    # Python handles signals only in this thread, and only while it is awake.
    while not stop.requested and not learner.finished.wait(0.1):
        pass
    server.shutdown()
    each = ", ".join(f"{count} from rank {sender}" for sender, count in sorted(learner.episodes.items()))
    print(f"{'stopped' if stop.requested else 'done'} at return {learner.score:.2f} with episodes: {each}")
    if stop.requested and not learner.finished.is_set():
        sys.exit(143)


def listen(handler: type[BaseHTTPRequestHandler]) -> ThreadingHTTPServer:
    """Listen on this process's own host. In a cluster its name may take a moment to resolve."""
    limit = time.monotonic() + 30
    while True:
        try:
            return ThreadingHTTPServer((nodes()[rank()], PORT), handler)
        except OSError:
            if time.monotonic() > limit:
                raise
            time.sleep(0.2)


if __name__ == "__main__":
    main()
