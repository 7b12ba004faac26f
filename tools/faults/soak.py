"""A data plane under random faults for as long as you like: all oracles hold in the end, and memory stays flat.

Two planes run side by side. In one anybody may be killed or replaced at any moment; in the other processes live as
long as the soak, under every fault that leaves them alive, so that what they leak adds up.
"""

from __future__ import annotations

import contextlib
import os
import random
import statistics
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from callsheet import contract
from tools.faults import inject, oracles, s3server
from tools.faults.machine import Disk, small_disk
from tools.faults.plane import Plane, moves, plane
from tools.faults.storeproxy import StoreProxy, StoreScript

SERVICES = ("replay", "trajectories", "policy", "parameters")
BACK = 60.0
"""Seconds within which every service must go on after a fault."""
WARM = 45.0
"""Seconds after which memory is compared with what it is in the end."""
MORE_MEMORY = 24 << 20
"""Bytes by which a process may have grown, beside a tenth: allocators and tables have their own ideas of full."""
_STORE = {
    "500": StoreScript("error", 500),
    "503": StoreScript("error", 503, retry_after=1),
    "some 503": StoreScript("error", 503, share=0.5),
    "slow": StoreScript("slow", delay=1.5),
    "never": StoreScript("never"),
    "cut": StoreScript("cut"),
}


@dataclass
class World:
    """One of the planes, and what may be done to it."""

    plane: Plane
    actors: range
    proxy: StoreProxy
    disk: Disk | None
    learner_storage: str
    replay_storage: str
    kills: bool
    chance: random.Random
    done: Counter[str] = field(default_factory=Counter)
    longest: dict[str, float] = field(default_factory=dict)
    failure: str = ""

    def begin(self) -> None:
        """Start everybody."""
        made, pace = self.plane, 0.02
        made.add("replay", storage=self.replay_storage, every=1.0)
        made.add("parameters")
        made.add("policy")
        made.add("learner", connects=("replay",), via=True, storage=self.learner_storage)
        made.add("evaluator", connects=("parameters", "evaluations"), via=True, storage=self.replay_storage)
        for index in self.actors:
            via = self.kills or index > 0  # the first of those who live on speaks by memory
            made.add("actor", index, connects=SERVICES, via=via, pace=pace)
        self.all_move(120.0)

    def all_move(self, within: float) -> None:
        """Until each service goes on for everybody; remembers how long the longest pauses were."""
        beats = {
            f"{service} of actor-{index}": self.plane.beat(service, f"actor-{index}")
            for service in SERVICES
            for index in self.actors
        }
        beats["samples of the learner"] = self.plane.beat("samples", "learner-0")
        beats["verdicts of the evaluator"] = self.plane.beat("verdicts", "learner-0")
        for name, beat in beats.items():
            try:
                moves(beat, 2, within)
            except AssertionError as error:
                raise AssertionError(f"{name} did not go on: {error}") from None
            service = name.partition(" ")[0]
            self.longest[service] = max(self.longest.get(service, 0.0), round(beat.pause, 2))
            beat.forget()

    def faults(self) -> dict[str, Callable[[], None]]:
        """One of each kind, with a victim by chance."""
        one, chance = self.plane, self.chance
        who = chance.choice(sorted(one.members))
        spoken = chance.choice(sorted(name for name in one.members if one.proxies_of(name)))
        seconds = chance.uniform(1, 7)
        direction = chance.choice(["to", "from"])
        name = chance.choice(sorted(_STORE))
        found: dict[str, Callable[[], None]] = {
            f"stop {who}": lambda: inject.stop(one, who, seconds),
            f"stop {who} for long": lambda: inject.stop(one, who, 11.0),
            f"cut {spoken}": lambda: inject.cut(one, spoken, chance.randrange(1, 8)),
            f"corrupt {spoken}": lambda: inject.corrupt(one, spoken, chance.randrange(1, 8)),
            f"partition {spoken}": lambda: inject.partition(one, spoken, seconds, direction),  # type: ignore[arg-type]
            f"slow {spoken}": lambda: inject.slow(one, spoken, seconds),
            f"refuse {spoken}": lambda: inject.refuse(one, spoken, seconds),
            f"store {name}": lambda: inject.store(self.proxy, seconds, _STORE[name]),
        }
        if self.kills:
            for victim in chance.sample(sorted(one.members), 4):
                found[f"kill {victim}"] = lambda victim=victim: inject.kill(one, victim)  # type: ignore[misc]
            served = chance.choice(["replay-0", "learner-0"])
            found[f"replace {served}"] = lambda: inject.succession(one, served, seconds, fenced=True)
            if os.geteuid() == 0:
                found[f"memory {who}"] = lambda: inject.out_of_memory(one, who)
        if self.disk is not None and self.kills:
            disk = self.disk
            found["full disk"] = lambda: inject.full_disk(disk, seconds)
            found["read-only disk"] = lambda: inject.read_only_disk(disk, seconds)
        elif self.disk is not None:
            disk = self.disk
            found["full disk"] = lambda: inject.full_disk(disk, seconds)
        return found

    def suffer(self, until: float, over: threading.Event) -> None:
        """Faults, one after the other, until then or until something is wrong anywhere."""
        number, name = 0, ""
        try:
            while time.monotonic() < until and not over.is_set():
                name, act = self.chance.choice(list(self.faults().items()))
                act()
                self.done[name.split(" ")[0] if not name.endswith("disk") else name] += 1
                number += 1
                if number % 4 == 0:
                    self.all_move(BACK)
                    self.look()
                self.plane.check_nothing_wrong()
                time.sleep(self.chance.uniform(0.2, 2.0))
        except Exception:  # noqa: BLE001 - told when the soak ends, which is at once
            over.set()
            self.failure = f"after {number} faults, the last: {name}\n{traceback.format_exc()}"

    def look(self) -> None:
        """The oracles, while everything goes on."""
        oracles.check_replay(self.plane.folder, self.replay_storage, self.actors)
        self.plane.check_nothing_wrong()

    def end(self) -> dict[str, Any]:
        """Let it finish, and ask the oracles."""
        self.all_move(2 * BACK)
        self.plane.finish()
        self.plane.check_nothing_wrong()
        folder = self.plane.folder
        return {
            "faults": dict(sorted(self.done.items())),
            "restarts": sum(end.code != 0 for end in self.plane.ends),
            "replay": oracles.check_replay(folder, self.replay_storage, self.actors),
            "learner": oracles.check_learner(folder, self.learner_storage, self.actors),
            "evaluator": oracles.check_evaluations(folder, self.replay_storage),
            "longest pauses, s": dict(sorted(self.longest.items())),
        }


class Memory(threading.Thread):
    """Looks at what processes take, every few seconds."""

    def __init__(self, watched: Plane, every: float = 2.0) -> None:
        super().__init__(daemon=True)
        self._plane = watched
        self._every = every
        self._over = threading.Event()
        self.seen: dict[str, list[tuple[float, int, int]]] = {}
        """By member: when, bytes, and open files."""

    def run(self) -> None:
        """Until told."""
        begun = time.monotonic()
        while not self._over.wait(self._every):
            for name in self._plane.members:
                pid = self._plane.pid(name)
                with contextlib.suppress(OSError, ValueError, IndexError):
                    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
                    files = len(os.listdir(f"/proc/{pid}/fd"))
                    at = time.monotonic() - begun
                    self.seen.setdefault(name, []).append((at, pages * os.sysconf("SC_PAGE_SIZE"), files))

    def finish(self) -> None:
        """No more."""
        self._over.set()
        self.join()

    def growth(self) -> dict[str, dict[str, float]]:
        """The first quarter, without the very beginning, beside the last one."""
        found = {}
        for name, seen in self.seen.items():
            end = seen[-1][0]
            warm = min(WARM, end / 4)
            first = [one for one in seen if warm <= one[0] <= max(end / 4, warm + end / 8)]
            last = [one for one in seen if one[0] >= end * 3 / 4]
            found[name] = {
                "first MB": round(statistics.median(one[1] for one in first) / 2**20, 1),
                "last MB": round(statistics.median(one[1] for one in last) / 2**20, 1),
                "first files": statistics.median(one[2] for one in first),
                "last files": statistics.median(one[2] for one in last),
            }
        return found


def not_flat(growth: dict[str, dict[str, float]]) -> list[str]:
    """Who has grown, in sentences."""
    found = []
    for name, one in growth.items():
        if one["last MB"] > 1.1 * one["first MB"] + MORE_MEMORY / 2**20:
            found.append(f"{name} has grown from {one['first MB']} to {one['last MB']} MB")
        if one["last files"] > one["first files"] + 20:
            found.append(f"{name} had {one['first files']} files open and now {one['last files']}")
    return found


@contextlib.contextmanager
def _world(folder: Path, server: s3server.S3Server, seed: int, name: str, *, kills: bool) -> Iterator[World]:
    with contextlib.ExitStack() as stack:
        proxy = stack.enter_context(StoreProxy(server.endpoint, seed))
        disk = None
        if os.geteuid() == 0:
            disk = stack.enter_context(small_disk(folder / name / "disk", 32))
        env = {**server.environment(), "AWS_ENDPOINT_URL": proxy.url}
        made = stack.enter_context(plane(folder / name, seed=seed, env=env))
        yield World(
            made,
            range(3 if kills else 2),
            proxy,
            disk,
            str(folder / name / "disk" / "storage"),
            f"s3://{s3server.BUCKET}/{name}",
            kills,
            random.Random(f"{seed} {name}"),  # noqa: S311 - must be repeatable
        )


def soak(folder: Path, minutes: float, seed: int) -> dict[str, Any]:
    """Run it; what was seen. `failures` is empty when all is well."""
    failures: list[str] = []
    told: dict[str, Any] = {"minutes": minutes, "seed": seed}
    with (
        s3server.serving(folder / "s3") as server,
        s3server.variables(server.environment()),  # for the oracles, which ask the server itself
        _world(folder, server, seed, "killed", kills=True) as killed,
        _world(folder, server, seed, "lasting", kills=False) as lasting,
    ):
        worlds = [killed, lasting]
        for world in worlds:
            world.begin()
        memory = Memory(lasting.plane)
        memory.start()
        until = time.monotonic() + minutes * 60
        over = threading.Event()
        threads = [threading.Thread(target=world.suffer, args=(until, over), daemon=True) for world in worlds]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        memory.finish()
        for name, world in (("killed", killed), ("lasting", lasting)):
            if world.failure:
                failures.append(f"{name}: {world.failure}")
                continue
            try:
                told[name] = world.end()
            except Exception:  # noqa: BLE001 - the other one is worth a look too
                failures.append(f"{name}: {traceback.format_exc()}")
        told["memory"] = memory.growth()
        # Its members are stopped at the end, and never before: a program that is stopped ends with 143.
        died = [end for end in lasting.plane.ends if end.code not in (0, contract.EXIT_STOPPED)]
        if died:
            failures.append(f"lasting: ended on their own: {died}")
        failures += not_flat(told["memory"])
    told["failures"] = failures
    return told
