"""The roles of a small data plane that can be hurt: each is a real process that logs what it was promised.

`python -m tools.faults.programs MEMBER`, where MEMBER is the JSON of a `Member`. Items are numbered, so that
tools/faults/oracles.py can tell what was lost or doubled; whoever sees something wrong writes it into `wrong`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from callsheet.errors import CallsheetError, RetryError
from callsheet.runtime import (
    Context,
    ParameterReader,
    ParameterServer,
    PolicyServer,
    ReplayServer,
    Schema,
    Stopping,
    TrajectoryWriter,
)
from callsheet.runtime.keys import Keys
from callsheet.runtime.replay import Table
from callsheet.store import open_store
from tools.faults.beats import Beat

ITEMS = 20_000
SEEN = Schema.of({"obs": np.zeros(3, "f4")})
DONE = Schema.of({"action": np.float64(0)})
SIZES = (1, 1000, 20_000)
TRY = 1.0
"""Seconds for one try of something that may have no answer: then it looks whether it is time to finish."""
LAST_TRY = 60.0


def table(items: int = ITEMS) -> Table:
    """What the replay holds."""
    return Table(kind="prioritized", items=items, seed=1)


class Member(msgspec.Struct, frozen=True):
    """One process of the plane."""

    role: str
    index: int
    folder: str
    addresses: dict[str, str]
    storage: str = ""
    kind: str = "memory"
    """How it speaks: memory, network (plain) or encrypted."""
    key: str = "k"
    pace: float = 0.005
    """Seconds between two items of a writer."""
    every: float = 0.5
    """Seconds between two snapshots or checkpoints."""
    items: int = ITEMS
    """That the replay holds."""
    model: int = 1000
    """Bytes of a checkpoint."""
    width: int = 0
    """More numbers in an item than others have: another schema."""

    @property
    def name(self) -> str:
        return f"{self.role}-{self.index}"


class Here:
    """What a program of the plane works with."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.folder = Path(member.folder)
        self.context = Context(
            role=member.role,
            index=member.index,
            addresses=member.addresses,
            keys=Keys((member.key * 32)[:32].encode()),
            plaintext=member.kind == "network",
            memory=member.kind == "memory",
        )

    @property
    def finishing(self) -> bool:
        """Whether writers should come to an end."""
        return (self.folder / "finish").exists()

    def log(self, name: str) -> Callable[[str], None]:
        """Something that takes lines; what it took survives the process."""
        file = os.open(self.folder / name, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        return lambda line: (os.write(file, f"{line}\n".encode()), None)[1]

    def wrong(self, what: str) -> None:
        """Nobody may see this."""
        self.log("wrong")(f"{self.member.name}: {what}")

    def beat(self, service: str) -> Beat:
        return Beat(self.folder, f"{service}-{self.member.name}")


def replay(here: Here) -> None:
    """A shard with snapshots."""
    member = here.member
    with ReplayServer(
        here.context, "replay", table(member.items), storage=member.storage, snapshot_every=member.every
    ) as server:
        server.serve()


def parameters(here: Here) -> None:
    """Publish versions whose arrays are full of their number."""
    with ParameterServer(here.context, "parameters") as server:
        for version in range(1 << 60):
            arrays = {
                f"w{n}": np.full(size + here.member.width, version, "f4") for n, size in enumerate(SIZES)
            }
            server.publish(version, arrays)
            here.context.sleep(0.05)


def policy(here: Here) -> None:
    """Answer with the sum of all that an environment has seen: a lost or doubled request is seen in every answer."""

    def add_up(observations: Any, states: Any) -> Any:
        sums = states["sum"] + observations["obs"][:, 0]
        return {"action": sums}, {"sum": sums}

    schema = Schema.of({"obs": np.zeros(3 + here.member.width, "f4")})
    state = {"sum": np.float64(0)}
    PolicyServer(
        here.context, "policy", add_up, max_batch=64, schema_in=schema, schema_out=DONE, state=state
    ).serve()


def evaluator(here: Here) -> None:
    """Judge versions: a result in the store first, then a verdict for the learner. As callsheet.rl.roles.evaluator."""
    store, beat = open_store(here.member.storage, patience=5.0), here.beat("evaluations")
    verdict = {"version": np.array(0), "mean": np.zeros(1 + here.member.width)}
    with (
        ParameterReader(here.context, "parameters") as reader,
        TrajectoryWriter(here.context, "evaluations", Schema.of(verdict)) as writer,
    ):
        while True:
            found = reader.wait()
            told = {"version": found.version, "mean": found.version / 2}
            try:
                store.put(f"evaluations/{found.version:012d}.json", json.dumps(told).encode())
            except RetryError as error:
                print(f"{error.message}; continuing with the next version", flush=True)
                continue
            verdict["version"][...], verdict["mean"][...] = found.version, found.version / 2
            writer.write(verdict)
            beat.tick()
            here.context.sleep(0.1)


def actor(here: Here) -> None:
    """Every duty that it has an address for, each in a thread of its own: one that waits holds up no other."""
    from tools.faults import duties

    threads = [
        threading.Thread(target=_guarded, args=(duty, here), name=name, daemon=True)
        for name, duty in duties.DUTIES.items()
        if name in here.member.addresses
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(0.1)
    here.context.stop.check()


def _guarded(duty: Callable[[Here], None], here: Here) -> None:
    try:
        duty(here)
    except Stopping:
        pass
    except CallsheetError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        os._exit(error.exit_code)
    except BaseException:  # noqa: BLE001 - the process ends as if it had one thread
        import traceback

        traceback.print_exc()
        os._exit(1)


def learner(here: Here) -> None:
    """See tools/faults/learner.py."""
    from tools.faults.learner import learn

    learn(here)


ROLES: dict[str, Callable[[Here], None]] = {
    "replay": replay,
    "parameters": parameters,
    "policy": policy,
    "evaluator": evaluator,
    "actor": actor,
    "learner": learner,
}


def _grow(*_: object) -> None:
    """Take memory until there is none: what a leak does in the end."""
    hoard = []
    while True:
        hoard.append(np.ones(1 << 20))


def main() -> int:
    """Run one member."""
    member = msgspec.json.decode(sys.argv[1], type=Member)
    signal.signal(signal.SIGUSR1, _grow)
    here = Here(member)
    try:
        with here.context:
            here.beat("starts").tick()
            ROLES[member.role](here)
    except CallsheetError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
