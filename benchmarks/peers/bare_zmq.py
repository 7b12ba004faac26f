"""Bare ZeroMQ: PUSH to PULL over loopback TCP, without copies where it can, with a small header; optionally CURVE.

`bare_zmq.py PAYLOAD WRITERS SECONDS [curve]`.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from typing import Any

import msgspec
import numpy as np
import zmq
from payloads import PAYLOADS, Batch, measure, rollout


def _header(payload: str) -> bytes:
    fields = [[name, kind, list(shape)] for name, (shape, kind) in PAYLOADS[payload].items()]
    return msgspec.msgpack.encode({"v": 1, "version": 0, "actor": 0, "sequence": 0, "fields": fields})


def _write(address: str, payload: str, server_key: bytes) -> None:
    push = zmq.Context().socket(zmq.PUSH)
    push.sndhwm = 4
    if server_key:
        push.curve_publickey, push.curve_secretkey = zmq.curve_keypair()
        push.curve_serverkey = server_key
    push.connect(address)
    item = rollout(payload)
    while True:
        push.send_multipart([_header(payload), *(memoryview(value) for value in item.values())], copy=False)


def _read(frames: list[Any], payload: str) -> dict[str, np.ndarray]:
    header = msgspec.msgpack.decode(frames[0].buffer)
    found = {}
    for (name, kind, shape), frame in zip(header["fields"], frames[1:], strict=True):
        found[name] = np.frombuffer(frame.buffer, kind).reshape(shape)
    return found


def main(payload: str, writers: int, seconds: float, curve: bool) -> None:
    context = multiprocessing.get_context("spawn")
    pull = zmq.Context().socket(zmq.PULL)
    pull.rcvhwm = 4
    public = b""
    if curve:
        public, secret = zmq.curve_keypair()
        pull.curve_server, pull.curve_secretkey = True, secret
    port = pull.bind_to_random_port("tcp://127.0.0.1")
    children = [
        context.Process(target=_write, args=(f"tcp://127.0.0.1:{port}", payload, public), daemon=True)
        for _ in range(writers)
    ]
    for child in children:
        child.start()
    batch = Batch(payload)

    def take() -> int:
        batch.put(_read(pull.recv_multipart(copy=False), payload))
        return 1

    measure("bare pyzmq, CURVE" if curve else "bare pyzmq", payload, writers, seconds, take)
    for child in children:
        child.kill()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), "curve" in sys.argv[4:])
