"""How the cells of the matrix are measured: hurt a victim of the data plane, and see what those notice who use it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.faults import inject, s3server
from tools.faults.machine import Clock
from tools.faults.proxy import Direction
from tools.faults.scenes import Measured, Scene, scene
from tools.faults.storeproxy import MULTIPART, Answer, StoreProxy, StoreScript
from tools.faults.waiting import eventually

MB = 1 << 20


@dataclass(frozen=True)
class Setting:
    """Where and with what a cell is measured."""

    victim: str
    folder: Path
    seed: int
    s3: Callable[[], s3server.S3Server]
    """A server that is started when the first cell needs it."""


Measure = Callable[[Setting], Measured]


def _hurt(found: Scene, act: Callable[[], None], within: float) -> Measured:
    """Hurt, wait until all goes on, and hold the longest pause against the promise; then the oracles."""
    begun = time.monotonic()
    act()
    lasted = time.monotonic() - begun
    found.all_move()
    told = found.pauses()
    told["fault_s"] = round(lasted, 2)
    assert float(told["pause_s"]) <= within, f"a pause of {told['pause_s']} s, {within} s are promised"
    others = float(told.get("others_pause_s", 0.0))
    assert others <= OTHERS, f"others had a pause of {others} s, {OTHERS} s are promised"
    return {**told, **found.check()}


OTHERS = 5.0
"""Seconds that those who have nothing to do with a fault may have to wait, on a machine with few cores."""


def killed(within: float) -> Measure:
    """kill -9, three times."""

    def measure(setting: Setting) -> Measured:
        with scene(setting.victim, setting.folder, setting.seed) as found:

            def act() -> None:
                for _ in range(3):
                    inject.kill(found.plane, found.victim)
                    found.all_move(2)

            return _hurt(found, act, within)

    return measure


def stopped(seconds: float, within: float) -> Measure:
    """SIGSTOP for a while."""

    def measure(setting: Setting) -> Measured:
        with scene(setting.victim, setting.folder, setting.seed) as found:
            return _hurt(found, lambda: inject.stop(found.plane, found.victim, seconds), seconds + within)

    return measure


def replaced(within: float, *, fenced: bool) -> Measure:
    """Stopped for so long that a successor takes over; then it wakes up."""

    def measure(setting: Setting) -> Measured:
        with scene(setting.victim, setting.folder, setting.seed) as found:

            def act() -> None:
                inject.succession(found.plane, found.victim, 6.0, fenced=fenced)

            told = _hurt(found, act, within)
            if fenced:
                told["said"] = inject.FENCED
            return told

    return measure


def connection(act: Callable[[Scene], None], within: float) -> Measure:
    """Something happens to the victim's connections."""

    def measure(setting: Setting) -> Measured:
        with scene(setting.victim, setting.folder, setting.seed) as found:
            return _hurt(found, lambda: act(found), within)

    return measure


def slow(found: Scene) -> None:
    """A tenth of a second and 100 kB/s, for eight seconds."""
    inject.slow(found.plane, found.victim, 8.0)


def cut(found: Scene) -> None:
    """Ten times in the middle of a frame."""
    inject.cut(found.plane, found.victim, 10)


def corrupt(found: Scene) -> None:
    """Ten bytes."""
    inject.corrupt(found.plane, found.victim, 10, 40_000)


def one_way(found: Scene) -> None:
    """First nothing arrives there, then nothing from there; each for longer than a connection is trusted."""
    directions: tuple[Direction, Direction] = ("to", "from")
    for direction in directions:
        inject.partition(found.plane, found.victim, 6.0, direction)
        found.all_move(2)


def disk(act: Callable[[Scene], None], within: float, said: str) -> Measure:
    """Something happens to the disk of the storage."""

    def measure(setting: Setting) -> Measured:
        with scene(setting.victim, setting.folder, setting.seed, disk=True) as found:
            told = _hurt(found, lambda: act(found), within)
            told["said"] = _line(found, said)
            return told

    return measure


def full(found: Scene) -> None:
    """For five seconds."""
    assert found.disk is not None
    inject.full_disk(found.disk, 5.0)


def read_only(found: Scene) -> None:
    """For five seconds."""
    assert found.disk is not None
    inject.read_only_disk(found.disk, 5.0)


def _line(found: Scene, said: str) -> str:
    """The line of the victim's output that tells of the fault."""
    lines = [line for line in found.plane.output(found.victim).splitlines() if said in line]
    assert lines, f"{found.victim} did not say {said!r}: {found.plane.output(found.victim)[-2000:]}"
    return lines[0].replace(str(found.plane.folder.parent), "...")


def store(script: StoreScript, seconds: float, within: float, said: str = "") -> Measure:
    """The store answers in another way for some seconds."""

    def measure(setting: Setting) -> Measured:
        with scene(setting.victim, setting.folder, setting.seed, s3=setting.s3()) as found:
            proxy = found.proxy
            assert proxy is not None
            told = _hurt(found, lambda: inject.store(proxy, seconds, script), seconds + within)
            assert proxy.done[script.answer] > 0, "no request was hit"
            told["requests_hit"] = proxy.done[script.answer]
            if said:
                told["said"] = _line(found, said)
            return told

    return measure


def _hits(proxy: StoreProxy, answer: Answer, times: int) -> None:
    enough = proxy.done[answer] + times
    eventually(lambda: proxy.done[answer] >= enough, 60, "no request was hit")


def multipart(setting: Setting) -> Measured:
    """Parts of large uploads fail: a connection that ends half-way, then errors."""
    large: dict[str, dict[str, Any]] = {
        "learner": {"model": 24 * MB, "every": 2.0},
        "replay shard": {"width": 40_000, "pace": 0.02},
    }
    with scene(
        setting.victim, setting.folder, setting.seed, s3=setting.s3(), items=400, **large[setting.victim]
    ) as found:
        proxy = found.proxy
        assert proxy is not None

        def act() -> None:
            for script in (
                StoreScript("cut", only=MULTIPART, skip=1, times=2),
                StoreScript("error", only=MULTIPART, skip=1, times=2),
            ):
                proxy.follow(script)
                _hits(proxy, script.answer, 2)
            proxy.follow(None)

        told = _hurt(found, act, 60.0)
        return {**told, "parts_failed": proxy.done["cut"] + proxy.done["error"]}


def clock(within: float) -> Measure:
    """Two days on, then three days back, each with a kill: a later start has an earlier time."""

    def measure(setting: Setting) -> Measured:
        with scene(setting.victim, setting.folder, setting.seed) as found:
            ticking = Clock(setting.folder / "clock")
            found.plane.replace(found.victim, env=ticking.environment)
            found.all_move()
            found.forget()

            def act() -> None:
                for jump in ("+2d", "-3d"):
                    ticking.jump(jump)
                    found.all_move(5)
                    inject.kill(found.plane, found.victim)
                    found.all_move(5)

            return _hurt(found, act, within)

    return measure


def out_of_memory(within: float) -> Measure:
    """It takes memory until the kernel kills it."""

    def measure(setting: Setting) -> Measured:
        with scene(setting.victim, setting.folder, setting.seed) as found:
            told = _hurt(found, lambda: inject.out_of_memory(found.plane, found.victim), within)
            assert found.plane.ends[0].code == -signal.SIGKILL, found.plane.ends
            return told

    return measure


def wrong_key(within: float) -> Measure:
    """Started with another run's key for some seconds: it has no part in anything, and says why; then with ours."""

    def measure(setting: Setting) -> Measured:
        with scene(setting.victim, setting.folder, setting.seed) as found:
            told: Measured = {}

            def act() -> None:
                found.plane.replace(found.victim, key="w")
                before = {name: beat.count for name, beat in found.services.items()}
                told["said"] = _reason(found, "the handshake fails", "does not accept this process's key")
                after = {name: beat.count for name, beat in found.services.items()}
                # What was on its way when it was replaced may still be counted.
                served = max(after[name] - before[name] for name in after)
                assert served <= MOST_LATE, f"{served} were served with another run's key"
                found.plane.replace(found.victim, key="k")

            return {**_hurt(found, act, within), **told}

    return measure


MOST_LATE = 400
"""Durable marks of items that were sent before, which are told at the next hello."""


def _reason(found: Scene, *said: str) -> str:
    """A line, of anybody, that says one of these."""

    def look() -> str:
        for name in found.plane.members:
            for line in found.plane.output(name).splitlines():
                if any(one in line for one in said):
                    return line
        return ""

    return eventually(look, 60, f"nobody says {said}")


def other_schema(within: float, *said: str, width: int = 1) -> Measure:
    """The victim comes back as a later version, whose arrays are others: refused in a sentence, or taken as it is."""

    def measure(setting: Setting) -> Measured:
        with scene(setting.victim, setting.folder, setting.seed) as found:
            told: Measured = {}

            def act() -> None:
                found.plane.replace(found.victim, width=width)
                if said:
                    told["said"] = _reason(found, *said)
                else:
                    found.all_move()
                found.plane.replace(found.victim, width=0)

            return {**_hurt(found, act, within), **told}

    return measure
