"""A bare hand-over: slots in anonymous memory, their numbers on a Unix socket, no header and no checks.

`handover.py PAYLOAD WRITERS SECONDS`. No busy waiting.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import select
import socket
import struct
import sys

import numpy as np
from payloads import PAYLOADS, Batch, measure, rollout, size

SLOTS = 8


def _slots(memory: mmap.mmap, payload: str) -> list[dict[str, np.ndarray]]:
    step, found = -(-size(payload) // 4096) * 4096, []
    for number in range(SLOTS):
        place, arrays = number * step, {}
        for name, (shape, kind) in PAYLOADS[payload].items():
            arrays[name] = np.ndarray(shape, kind, memory, place)
            place += arrays[name].nbytes
        found.append(arrays)
    return found


def _write(connection: socket.socket, payload: str) -> None:
    length = SLOTS * (-(-size(payload) // 4096) * 4096)
    fd = os.memfd_create("bare")
    os.ftruncate(fd, length)
    socket.send_fds(connection, [b"x"], [fd])
    slots, item, free = _slots(mmap.mmap(fd, length), payload), rollout(payload), list(range(SLOTS))
    while True:
        if not free:
            free.append(connection.recv(1)[0])
        number = free.pop()
        for key, value in item.items():
            slots[number][key][...] = value
        connection.send(struct.pack("B", number))


def main(payload: str, writers: int, seconds: float) -> None:
    context = multiprocessing.get_context("fork")
    poll, ends = select.poll(), {}
    children = []
    for _ in range(writers):
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        child = context.Process(target=_write, args=(there, payload), daemon=True)
        child.start()
        children.append(child)
        _, fds, _, _ = socket.recv_fds(here, 1, 1)
        ends[here.fileno()] = (here, _slots(mmap.mmap(fds[0], 0), payload))
        poll.register(here.fileno(), select.POLLIN)
    batch = Batch(payload)

    def take() -> int:
        count = 0
        for fd, _ in poll.poll():
            connection, slots = ends[fd]
            number = connection.recv(1)
            batch.put(slots[number[0]])
            connection.send(number)
            count += 1
        return count

    measure("bare memfd hand-over", payload, writers, seconds, take)
    for child in children:
        child.kill()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
