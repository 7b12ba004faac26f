"""Listens where it is told by its environment and answers every line with the same line; an echo server."""

import os
import socketserver
import sys

endpoint = sys.argv[1]
host, port = os.environ[f"CALLSHEET_{endpoint}_BIND"].rsplit(":", 1)


class Echo(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        for line in self.rfile:
            self.wfile.write(line)


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


Server((host, int(port)), Echo).serve_forever()
