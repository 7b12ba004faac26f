"""What an actor of the small data plane does: write items that must not be lost, ask, and read; each checks its answers."""

from __future__ import annotations

import numpy as np

from callsheet.runtime import ParameterReader, PolicyClient, ReplayClient, TrajectoryWriter
from callsheet.runtime.link.link import TimedOut
from callsheet.runtime.policy.client import PolicyFailed
from tools.faults.programs import LAST_TRY, TRY, Here


def insert(here: Here) -> None:
    """Insert durable items into the replay, and log which are durable."""
    member, context, beat = here.member, here.context, here.beat("replay")
    durable = here.log(f"replay-durable-{member.index}")
    logged: dict[tuple[str, int], int] = {}
    with ReplayClient(context, "replay", durable=True, keep=1 << 20) as replay:

        def note() -> None:
            known = [(shard, context.incarnation, last) for shard, last in replay.durable.items()]
            for shard, marks in replay.previous.items():
                known += [(shard, incarnation, last) for incarnation, last in marks]
            for shard, incarnation, last in known:
                news = last - logged.get((shard, incarnation), 0)
                if news > 0:
                    logged[shard, incarnation] = last
                    durable(f"{incarnation} {last}")
                    beat.tick(news)

        number = 0
        while number == 0 or not here.finishing:  # at least one: what came before it is then known too
            arrays = {
                "id": np.array([member.index, context.incarnation, number + 1]),
                "x": np.full(16 + member.width, number + 1),
            }
            try:
                _, sequence = replay.insert(arrays, timeout=TRY)
            except TimedOut:
                note()
                continue
            number += 1
            if sequence != number:
                here.wrong(f"item {number} got the sequence {sequence}")
            note()
            context.sleep(member.pace)
        replay.flush(LAST_TRY, durable=True)
        note()


def roll_out(here: Here) -> None:
    """Write durable rollouts for the learner, and log which are durable."""
    member, context, beat = here.member, here.context, here.beat("trajectories")
    durable = here.log(f"trajectories-durable-{member.index}")
    logged: dict[int, int] = {}
    with TrajectoryWriter(context, "trajectories", durable=True, keep=1 << 20) as writer:

        def note() -> None:
            for incarnation, last in ((context.incarnation, writer.durable), *writer.previous):
                news = last - logged.get(incarnation, 0)
                if news > 0:
                    logged[incarnation] = last
                    durable(f"{incarnation} {last}")
                    beat.tick(news)

        number = 0
        while number == 0 or not here.finishing:
            arrays = {
                "id": np.array([context.incarnation, number + 1]),
                "x": np.full(250 + member.width, number + 1),
            }
            try:
                sequence = writer.write(arrays, timeout=TRY)
            except TimedOut:
                note()
                continue
            number += 1
            if sequence != number:
                here.wrong(f"rollout {number} got the sequence {sequence}")
            note()
            context.sleep(member.pace)
        writer.flush(LAST_TRY, durable=True)
        note()


def ask(here: Here) -> None:
    """Ask the policy server, which adds up: each answer must be the next number, unless the server is a new one."""
    context, beat = here.context, here.beat("policy")
    last, life = 0.0, 0
    with PolicyClient(context, "policy") as client:
        observations = {"obs": np.ones((1, 3 + here.member.width), "f4")}
        ticket = None
        while not here.finishing:
            try:
                ticket = ticket or client.submit(observations, timeout=TRY)
                answer = client.result(ticket, TRY)
            except TimedOut:
                continue
            except PolicyFailed as error:
                here.wrong(str(error))
                ticket = None
                continue
            ticket = None
            now = float(answer.arrays["action"][0])
            if now != last + 1 and not (now == 1 and answer.incarnation != life):
                here.wrong(f"the policy answered {now} after {last}")
            last, life = now, answer.incarnation
            beat.tick()
            context.sleep(here.member.pace)


def read(here: Here) -> None:
    """Read parameters: whole, and never an older version of the same publisher."""
    context, beat = here.context, here.beat("parameters")
    have = (0, -1)
    with ParameterReader(context, "parameters") as reader:
        while not here.finishing:
            try:
                found = reader.wait(timeout=TRY)
            except TimedOut:
                continue
            if not all((value == found.version).all() for value in found.arrays.values()):
                here.wrong(f"version {found.version} is a mix")
            if found.incarnation == have[0] and found.version <= have[1]:
                here.wrong(f"version {found.version} after {have[1]}")
            have = (found.incarnation, found.version)
            beat.tick()


DUTIES = {"replay": insert, "trajectories": roll_out, "policy": ask, "parameters": read}
"""By the endpoint that an actor has an address of."""
