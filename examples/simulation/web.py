"""What the programs of this example share: identity, HTTP, and addresses."""

from __future__ import annotations

import http.client
import json
import os
import signal
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError, URLError
from urllib.request import urlopen


def identity(container: str) -> str:
    """Who this process is, with defaults when it runs without Callsheet."""
    role = os.environ.get("CALLSHEET_ROLE", "by-hand")
    index = os.environ.get("CALLSHEET_INDEX", "0")
    return f"container={os.environ.get('CALLSHEET_CONTAINER', container)} role={role} index={index}"


def serve(bind: str, answer: Callable[[], str]) -> None:
    """Answer ``GET /`` with a line of text until SIGTERM or Ctrl-C; then exit as if the signal had ended the process."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                status, text = 200, answer()
            except Unreachable as error:
                status, text = 503, str(error)
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.end_headers()
            self.wfile.write(f"{text}\n".encode())

        def log_message(self, *_: object) -> None:
            """Quiet: a line per request would hide the interesting ones."""

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    host, _, port = bind.rpartition(":")
    try:
        server = ThreadingHTTPServer((host, int(port)), Handler)
    except OSError as error:
        sys.exit(f"cannot listen on {bind}: {error.strerror}")
    print(f"listening on http://{bind}", flush=True)
    with server:
        server.serve_forever()


class Unreachable(Exception):
    """A process did not answer."""


def ask(address: str) -> str:
    """What the process at an address answers."""
    try:
        with urlopen(f"http://{address}/", timeout=2) as response:
            return response.read().decode().strip()
    except HTTPError as error:
        with error:
            raise Unreachable(
                f"http://{address} answers {error.code}: {error.read().decode().strip()}"
            ) from None
    except (URLError, OSError, http.client.HTTPException) as error:
        raise Unreachable(f"no answer from http://{address}: {getattr(error, 'reason', error)}") from None


def addresses(file_path: str | None = None) -> dict[str, list[str]]:
    """The addresses behind each endpoint, in index order. The file is kept current while roles change size."""
    path = file_path or os.environ.get("CALLSHEET_ADDRESSES")
    if not path:
        return {}
    with open(path) as file:
        endpoints = json.load(file)["endpoints"]
    return {name: endpoint["addresses"] for name, endpoint in endpoints.items()}
