"""A victim among others: the smallest data plane in which something can happen to it and somebody notices."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.faults import oracles, s3server
from tools.faults.beats import Beat
from tools.faults.machine import Disk, small_disk
from tools.faults.plane import Plane, moves, plane
from tools.faults.programs import ITEMS
from tools.faults.storeproxy import StoreProxy

Measured = dict[str, float | int | str]
NAMES = {
    "actor": "actor-0",
    "learner": "learner-0",
    "replay shard": "replay-0",
    "parameter server": "parameters-0",
    "policy server": "policy-0",
    "evaluator": "evaluator-0",
}
"""The victims that are processes of the data plane, and the member that each is."""
BACK = 90.0
"""Seconds that a service is waited for before it counts as lost; promises are shorter, and checked."""


@dataclass
class Scene:
    """The plane, who is hurt, who must notice nothing, and what is looked at."""

    plane: Plane
    victim: str
    seed: int
    items: int = ITEMS
    services: dict[str, Beat] = field(default_factory=dict)
    """What the victim has a part in, as those see it who use it."""
    others: dict[str, Beat] = field(default_factory=dict)
    """What goes on beside it."""
    disk: Disk | None = None
    proxy: StoreProxy | None = None

    def all_move(self, by: int = 10) -> float:
        """Until every service goes on; how long that took."""
        begun = time.monotonic()
        for name, beat in {**self.services, **self.others}.items():
            try:
                moves(beat, by, BACK)
            except AssertionError as error:
                ends = self.plane.ends[-3:]
                raise AssertionError(f"{name} of {self.victim} did not go on: {error}; {ends}") from None
        return time.monotonic() - begun

    def forget(self) -> None:
        """Measure pauses from now on."""
        for beat in (*self.services.values(), *self.others.values()):
            beat.forget()

    def pauses(self) -> Measured:
        """The longest since `forget`."""
        found: Measured = {"pause_s": round(max(b.pause for b in self.services.values()), 2)}
        if self.others:
            found["others_pause_s"] = round(max(b.pause for b in self.others.values()), 2)
        return found

    def check(self) -> Measured:
        """Everybody comes to an end, and the oracles are asked."""
        one = self.plane
        roles = {name.partition("-")[0] for name in one.members}
        one.finish()
        one.check_nothing_wrong()
        actors = [running.member.index for running in one.members.values() if running.member.role == "actor"]
        found: Measured = {}
        if "replay" in roles and "actor" in roles:
            found["durable_items"] = oracles.check_replay(one.folder, one.storage, actors, self.items)[
                "promised"
            ]
        if "learner" in roles and any(
            "trajectories" in m.member.addresses for m in one.members.values() if m.member.role == "actor"
        ):
            found["durable_rollouts"] = oracles.check_learner(one.folder, one.storage, actors)["promised"]
        if "evaluator" in roles:
            found["verdicts"] = oracles.check_evaluations(one.folder, one.storage)["verdicts"]
        return found


def _actor(scene: Scene) -> None:
    one = scene.plane
    one.add("replay", items=scene.items)
    one.add("learner")
    for index in range(2):
        one.add("actor", index, connects=("replay", "trajectories"), via=index == 0)
    for service in ("replay", "trajectories"):
        scene.services[service] = one.beat(service, "actor-0")
        scene.others[f"{service} of the other actor"] = one.beat(service, "actor-1")


def _learner(scene: Scene, **options: Any) -> None:
    one = scene.plane
    one.add("learner", **options)
    for index in range(2):
        one.add("actor", index, connects=("trajectories",), via=True)
        scene.services[f"rollouts of actor-{index}"] = one.beat("trajectories", f"actor-{index}")


def _replay(scene: Scene, **options: Any) -> None:
    one = scene.plane
    one.add("replay", items=scene.items)
    one.add("learner", connects=("replay",), via=True)
    scene.services["samples"] = one.beat("samples", "learner-0")
    for index in range(2):
        one.add("actor", index, connects=("replay",), via=True, **options)
        scene.services[f"items of actor-{index}"] = one.beat("replay", f"actor-{index}")


def _parameters(scene: Scene) -> None:
    _asked(scene, "parameters")


def _policy(scene: Scene) -> None:
    _asked(scene, "policy")


def _asked(scene: Scene, role: str) -> None:
    one = scene.plane
    one.add(role)
    for index in range(2):
        one.add("actor", index, connects=(role,), via=True)
        scene.services[f"answers to actor-{index}"] = one.beat(role, f"actor-{index}")


def _evaluator(scene: Scene) -> None:
    one = scene.plane
    one.add("parameters")
    one.add("learner")
    one.add("evaluator", connects=("parameters", "evaluations"), via=True)
    one.add("actor", connects=("parameters",))
    scene.services["verdicts"] = one.beat("verdicts", "learner-0")
    scene.others["parameters of an actor"] = one.beat("parameters", "actor-0")


_MAKERS: dict[str, Callable[..., None]] = {
    "actor": _actor,
    "learner": _learner,
    "replay shard": _replay,
    "parameter server": _parameters,
    "policy server": _policy,
    "evaluator": _evaluator,
}


@contextlib.contextmanager
def scene(
    victim: str,
    folder: Path,
    seed: int,
    *,
    disk: bool = False,
    s3: s3server.S3Server | None = None,
    items: int = ITEMS,
    **options: Any,
) -> Iterator[Scene]:
    """A scene in which everything goes on. With `disk` its storage is a disk that can fill up; with `s3` a bucket
    behind a proxy."""
    with contextlib.ExitStack() as stack:
        env, storage = {}, ""
        made_disk = proxy = None
        if disk:
            made_disk = stack.enter_context(small_disk(folder / "disk", 24))
            storage = str(folder / "disk" / "storage")
        if s3 is not None:
            proxy = stack.enter_context(StoreProxy(s3.endpoint, seed))
            env = {**s3.environment(), "AWS_ENDPOINT_URL": proxy.url}
            stack.enter_context(s3server.variables(s3.environment()))  # the oracles ask the server itself
            storage = f"s3://{s3server.BUCKET}/{folder.name}-{os.getpid()}-{time.monotonic_ns()}"
        made = stack.enter_context(plane(folder / "plane", seed=seed, storage=storage, env=env))
        found = Scene(made, NAMES[victim], seed, items, disk=made_disk, proxy=proxy)
        _MAKERS[victim](found, **options)
        found.all_move()
        found.forget()
        yield found
