"""A small simulator: a car on a straight track that must reach the end without leaving the road.

Like a real one, it listens on a socket: it answers {"reset": seed} and {"steer": x} with what the car sees.
"""

from __future__ import annotations

import argparse
import json
import random
import socketserver

from wire import address

LENGTH = 100
WIDTH = 1.0


class Track(socketserver.StreamRequestHandler):
    """One race after another for one client."""

    def handle(self) -> None:
        for line in self.rfile:
            message = json.loads(line)
            if "reset" in message:
                self.random = random.Random(message["reset"])
                self.offset, self.step = self.random.uniform(-0.3, 0.3), 0
            else:
                self.offset += message["steer"] + self.random.gauss(0.0, 0.3)
                self.step += 1
            off_road = abs(self.offset) > WIDTH
            seen = {
                "offset": self.offset,
                "reward": 0.0 if off_road else 1.0,
                "done": off_road or self.step >= LENGTH,
            }
            self.wfile.write(json.dumps(seen).encode() + b"\n")


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bind", default="127.0.0.1:16001", metavar="HOST:PORT")
    options = parser.parse_args()
    with Server(address(options.bind), Track) as server:
        print(f"track ready on {options.bind}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
