"""Servers under attack, beside honest clients: none may end, grow or keep them waiting."""

from __future__ import annotations

import time
from typing import Final

from tools.fuzz.chance import Chance
from tools.fuzz.members import Member
from tools.fuzz.peer import Peer, context, hello
from tools.fuzz.result import Result
from tools.fuzz.services import Client, Server

LARGEST_GROWTH: Final = 100 << 20
LONGEST_GAP: Final = 2.0


def attack(kind: str, seed: int, cases: int, seconds: float, *, gap: float = LONGEST_GAP) -> Result:
    """So many cases against one kind of server, or as many as there is time for."""
    result, begun = Result(kind), time.monotonic()
    with Server(kind) as server:
        with (
            Client(kind, server.address) as near,
            Client(kind, server.address, memory=False) as far,
            context(server.address, role="intruder") as shared,
        ):
            member = Member(kind, server.address, Chance(f"{kind}-{seed}"), shared)
            with Peer(server.address, shared) as peer:
                welcome = peer.hello(
                    hello(kind, schema=member._schema.encoded, body=member._hello_body(wrong=False))
                )
                door = getattr(welcome, "socket", "")
            before, until = server.memory, time.monotonic() + seconds
            while member.cases < cases and time.monotonic() < until and server.alive:
                _round(member, door)
                if server.alive:
                    result.growth = max(result.growth, server.memory - before)
            result.cases, result.seconds = member.cases, time.monotonic() - begun
            if not server.alive:
                result.failures.append(
                    f"{kind}: the server ended (seed {seed}, {member.cases} cases):\n{server.said[-4000:]}"
                )
                return result
            for client in (near, far):
                try:
                    served, longest = client.end()
                except RuntimeError as error:
                    result.failures.append(f"{kind}: {error} (seed {seed}):\n{server.said[-4000:]}")
                    continue
                result.gap = max(result.gap or 0.0, longest)
                if not served:
                    result.failures.append(f"{kind}: an honest client was not served")
        if result.gap is not None and result.gap > gap:
            result.failures.append(f"{kind}: an honest client waited {result.gap:.1f} s (seed {seed})")
        if result.growth > LARGEST_GROWTH:
            result.failures.append(
                f"{kind}: {result.growth:,} bytes of memory more than before (seed {seed})"
            )
    return result


def _round(member: Member, door: str) -> None:
    chance = member._chance
    member.over_network(400)
    member.over_shared_memory(chance.randint(1, 20))
    if chance.random() < 0.2:
        member.by_noise(20)
    if chance.random() < 0.2:
        member.knocking(door, 50)
    if chance.random() < 0.02:
        member.slow(0.5)
