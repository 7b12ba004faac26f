"""A policy server with a recurrent state, or a client of it, until killed: `policy.py serve|ask KIND ADDRESS`.

The policy adds up what each environment has seen, so that a lost or a doubled observation is seen in every answer.
"""

from __future__ import annotations

import sys

import numpy as np

from callsheet.runtime.context import Context
from callsheet.runtime.keys import Keys
from callsheet.runtime.policy import PolicyClient, PolicyServer
from callsheet.runtime.schema import Schema

KEYS = Keys(b"k" * 32)
SEEN = Schema.of({"obs": np.zeros(3, "f4")})
DONE = Schema.of({"action": np.float64(0), "obs": np.zeros(3, "f4")})
STATE = {"sum": np.float64(0)}


def context(kind: str, address: str, **options: object) -> Context:
    """A context of the tests: memory, network or encrypted."""
    return Context(
        addresses={"p": address},
        keys=KEYS,
        plaintext=kind == "network",
        memory=kind == "memory",
        **options,  # type: ignore[arg-type]
    )


def echo(observations: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Answers with the sum of the observation, and the observation."""
    seen = observations["obs"]
    return {"action": seen.sum(axis=1), "obs": seen}


def add_up(
    observations: dict[str, np.ndarray], states: dict[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Answers with the sum of all that the environment has seen."""
    sums = states["sum"] + observations["obs"][:, 0]
    return {"action": sums, "obs": observations["obs"]}, {"sum": sums}


if __name__ == "__main__":
    with context(sys.argv[2], sys.argv[3], role=sys.argv[1]) as ctx:
        if sys.argv[1] == "serve":
            server = PolicyServer(
                ctx, "p", add_up, max_batch=64, schema_in=SEEN, schema_out=DONE, state=STATE
            )
            print(server.address, flush=True)
            server.serve()
        else:
            with PolicyClient(ctx, "p") as client:
                while True:
                    print(client.act({"obs": np.ones((2, 3), "f4")}).arrays["action"], flush=True)
