"""gRPC: a policy server with one handler for each request, which answers at once.

`grpc_policy.py CLIENTS SECONDS`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
from clients import OBSERVATION, PROCESSES, ask, summary
from payloads import report

METHOD = "/policy/act"


class Policy(grpc.GenericRpcHandler):
    """One action for each observation."""

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        def act(request: bytes, context: grpc.ServicerContext) -> bytes:
            observation = np.frombuffer(request, "f4").reshape(1, 4)
            return (observation.sum(axis=1) > 0).astype("i8").tobytes()

        return grpc.unary_unary_rpc_method_handler(act)


def client(address: str, first: int, count: int, seconds: float) -> None:
    channel = grpc.insecure_channel(address)
    act = channel.unary_unary(METHOD)

    def make(number: int) -> Callable[[], None]:
        def request() -> None:
            np.frombuffer(act(OBSERVATION.tobytes()), "i8")

        return request

    print(ask(make, first, count, seconds))


def main(clients: int, seconds: float) -> None:
    server = grpc.server(ThreadPoolExecutor(16))
    server.add_generic_rpc_handlers((Policy(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    each = clients // PROCESSES
    command = [sys.executable, __file__, "client", f"127.0.0.1:{port}"]
    children = [
        subprocess.Popen(
            [*command, str(n * each), str(each), str(seconds)], stdout=subprocess.PIPE, text=True
        )
        for n in range(PROCESSES)
    ]
    answers = [child.communicate()[0] for child in children]
    report("gRPC", clients=clients, **summary(answers, seconds))
    os._exit(0)


if __name__ == "__main__":
    if sys.argv[1] == "client":
        client(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
    else:
        main(int(sys.argv[1]), float(sys.argv[2]))
