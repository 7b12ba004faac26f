"""How the three programs communicate: one JSON object per line over TCP, with retries until the peer is up."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

Message = dict[str, Any]


def address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


class Connection:
    """Sends requests to a peer, and reconnects if the peer restarts."""

    def __init__(self, peer: str, patience: float = 60.0) -> None:
        self.peer = peer
        self.patience = patience
        self.lines: Any = None

    def ask(self, message: Message) -> Message:
        give_up = time.monotonic() + self.patience
        while True:
            try:
                if self.lines is None:
                    connection = socket.create_connection(address(self.peer), timeout=10)
                    self.lines = connection.makefile("rw")
                self.lines.write(json.dumps(message) + "\n")
                self.lines.flush()
                answer = self.lines.readline()
                if answer:
                    return dict(json.loads(answer))
            except OSError:
                pass
            self.lines = None
            if time.monotonic() > give_up:
                raise SystemExit(f"no answer from {self.peer} for {self.patience:g} s")
            time.sleep(0.2)
