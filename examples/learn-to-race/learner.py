"""The learner: keeps the policy that races best, hands it out, and writes checkpoints and rewards to the storage."""

from __future__ import annotations

import argparse
import json
import os
import signal
import socketserver
import sys
import threading
from pathlib import Path
from urllib.parse import unquote, urlsplit

from wire import Message, address

CHECKPOINT_EVERY = 10


class Learner:
    """A tiny evolution strategy: the policy is one number, how hard to steer back to the middle."""

    def __init__(self, results: Path, episodes: int) -> None:
        self.results, self.episodes = results, episodes
        self.lock = threading.Lock()
        self.done = threading.Event()
        self.seen, self.version, self.gain, self.best = 0, 0, 0.0, 0.0
        (results / "checkpoints").mkdir(parents=True, exist_ok=True)
        self._resume()

    def _resume(self) -> None:
        kept = sorted((self.results / "checkpoints").glob("policy-*.json"))
        if kept:
            state = json.loads(kept[-1].read_text())
            self.seen, self.version, self.gain, self.best = (
                state[k] for k in ("seen", "version", "gain", "best")
            )
            print(f"resumed from {kept[-1].name}", flush=True)

    def answer(self, message: Message) -> Message:
        with self.lock:
            if "reward" in message and self.seen < self.episodes:
                self._learn(message)
            if self.seen >= self.episodes:
                self.done.set()
            return {"version": self.version, "gain": self.gain, "enough": self.seen >= self.episodes}

    def _learn(self, message: Message) -> None:
        self.seen += 1
        if message["reward"] >= self.best:
            self.best, self.gain, self.version = message["reward"], message["gain"], self.version + 1
        with (self.results / "rewards.jsonl").open("a") as file:
            file.write(json.dumps({"episode": self.seen, **message}) + "\n")
        if self.seen % CHECKPOINT_EVERY == 0:
            self._checkpoint()

    def _checkpoint(self) -> None:
        path = self.results / "checkpoints" / f"policy-{self.seen:06}.json"
        state = {"seen": self.seen, "version": self.version, "gain": self.gain, "best": self.best}
        path.with_suffix(".new").write_text(json.dumps(state))
        path.with_suffix(".new").rename(path)
        print(f"{self.seen} episodes, best {self.best:g}, policy {self.version}", flush=True)


def results_folder() -> Path:
    storage = os.environ.get("CALLSHEET_STORAGE", "file://" + os.path.abspath("results"))
    parts = urlsplit(storage)
    if parts.scheme != "file":
        sys.exit(f"this example writes to file:// and pvc:// storage, not to {storage}")
    return Path(unquote(parts.path))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bind", default="127.0.0.1:4444", metavar="HOST:PORT")
    parser.add_argument("--episodes", type=int, default=200)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        print(f"{name} is {'set' if os.environ.get(name) else 'not set'}", flush=True)

    learner = Learner(results_folder(), options.episodes)

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            for line in self.rfile:
                self.wfile.write(json.dumps(learner.answer(json.loads(line))).encode() + b"\n")

    socketserver.ThreadingTCPServer.allow_reuse_address = True
    socketserver.ThreadingTCPServer.daemon_threads = True
    with socketserver.ThreadingTCPServer(address(options.bind), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        while not learner.done.wait(0.2):
            pass  # wake up regularly to handle signals
        server.shutdown()
    print(
        f"learned from {learner.seen} episodes: best {learner.best:g} of 100, steering {learner.gain:.2f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
