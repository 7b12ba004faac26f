"""The trainer: visits every policy in turn, and answers with who it is."""

from __future__ import annotations

import argparse
import threading
import time

import web


class Rounds:
    """What the trainer has seen so far."""

    def __init__(self, interval: float) -> None:
        self.interval = interval
        self.done = 0

    def visit(self) -> None:
        """Ask every policy there is now; one that does not answer is asked again in the next round."""
        while True:
            answers = []
            for address in web.addresses().get("policy", []):
                try:
                    answers.append(web.ask(address))
                except web.Unreachable as error:
                    print(error, flush=True)
            self.done += 1
            print(f"round {self.done}: {len(answers)} policies answered", flush=True)
            time.sleep(self.interval)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bind", default="localhost:9993", metavar="HOST:PORT")
    parser.add_argument("--interval", type=float, default=1.0, metavar="S", help="seconds between two rounds")
    options = parser.parse_args()
    rounds = Rounds(options.interval)
    threading.Thread(target=rounds.visit, daemon=True).start()
    web.serve(options.bind, lambda: f"{web.identity('trainer')} rounds={rounds.done}")


if __name__ == "__main__":
    main()
