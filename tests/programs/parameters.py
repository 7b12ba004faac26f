"""Publishes or reads parameters until it is killed: `parameters.py publish|read|crowd KIND ADDRESS [NUMBER]`.

Every array of a version is full of its number, so that a mix of two versions is seen at once.
"""

from __future__ import annotations

import os
import sys

import numpy as np

from callsheet.runtime.context import Context
from callsheet.runtime.keys import Keys
from callsheet.runtime.parameters import ParameterReader, ParameterServer

KEYS = Keys(b"k" * 32)
SIZES = (1, 1000, 64 * 1024, 300_000)


def context(kind: str, address: str, **options: object) -> Context:
    """A context of the tests: memory, network or encrypted."""
    return Context(
        addresses={"p": address},
        keys=KEYS,
        plaintext=kind == "network",
        memory=kind == "memory",
        **options,  # type: ignore[arg-type]
    )


def arrays(version: int) -> dict[str, np.ndarray]:
    """Parameters that tell their version everywhere."""
    return {f"w{number}": np.full(size, version, "f4") for number, size in enumerate(SIZES)}


def publish(kind: str, address: str, version: int) -> None:
    """As fast as it can."""
    with context(kind, address) as ctx, ParameterServer(ctx, "p") as server:
        print(server.address, flush=True)
        while not ctx.stopping:
            server.publish(version, arrays(version))
            version += 1


def read(kind: str, address: str) -> None:
    """Says each version that it reads."""
    with context(kind, address, role="other") as ctx, ParameterReader(ctx, "p") as reader:
        while True:
            print(reader.wait().version, flush=True)


def crowd(kind: str, address: str, count: int) -> None:
    """Many readers, each of which reads every version that it can."""
    with context(kind, address, role="crowd", index=os.getpid()) as ctx:
        readers = [ParameterReader(ctx, "p") for _ in range(count)]
        while True:
            for reader in readers:
                reader.wait()


if __name__ == "__main__":
    if sys.argv[1] == "publish":
        publish(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    elif sys.argv[1] == "crowd":
        crowd(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        read(sys.argv[2], sys.argv[3])
