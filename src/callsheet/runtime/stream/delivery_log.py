"""Who sent what, up to where: duplicates are known by it, and a restarted receiver goes on from it.

A sender is known by its name, which a restart keeps, and by its incarnation, which a restart changes. Each incarnation
numbers its items from 1. Three marks are kept for it: what was *taken* into this process, what was *read* by the
user's program, and what is *durable*.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from callsheet.errors import UserError
from callsheet.runtime.link.protocol import MAX_INTEGER, Natural, decode

MOST_INCARNATIONS = 16
"""Starts of one sender that are remembered."""
MOST_SENDERS = 1 << 16
"""Names that are remembered. Beyond that those are forgotten that have gone first: they may send again what was taken."""
LARGEST = (1 << 62) - 1
"""Of a sequence or a version."""

Cursor = dict[str, list[list[int]]]
"""For each sender `[incarnation, sequence]` of each of its latest starts. It can be stored as JSON."""


class Marks(msgspec.Struct, array_like=True):
    """What a receiver tells a sender about its items."""

    taken: Natural = 0
    """The last item of this start of the sender that need not be sent again: what is here and not read may still be dropped."""
    durable: tuple[tuple[Natural, Natural], ...] = ()
    """The last durable item of this and of earlier starts: incarnation, sequence."""


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Marks)


def marks_of(body: bytes) -> Marks:
    """The marks in a message."""
    return decode(_DECODER, body, "marks") if body else Marks()


@dataclass(slots=True)
class Track:
    """One start of one sender."""

    incarnation: int
    taken: int = 0
    read: int = 0
    durable: int = 0


@dataclass(slots=True)
class Sender:
    """One sender, with its latest starts."""

    name: str
    number: int
    """In the order in which they were first heard of."""
    tracks: dict[int, Track] = field(default_factory=dict)
    here: bool = False
    """Whether it is connected."""

    def track(self, incarnation: int) -> Track:
        """Of one of its starts."""
        found = self.tracks.get(incarnation)
        if found is None:
            while len(self.tracks) >= MOST_INCARNATIONS:
                del self.tracks[next(iter(self.tracks))]
            found = self.tracks[incarnation] = Track(incarnation)
        return found

    def marks(self, incarnation: int) -> bytes:
        """What to tell this start of it."""
        mine = self.tracks.get(incarnation)
        durable = tuple((one.incarnation, one.durable) for one in self.tracks.values() if one.durable)
        return _ENCODER.encode(Marks(mine.read if mine else 0, durable))


class Ledger:
    """All senders that a receiver has heard of."""

    def __init__(self, cursor: Mapping[str, Sequence[Sequence[int]]] | None = None) -> None:
        self._senders: dict[str, Sender] = {}
        self._names: list[str] = []
        self._unused: list[int] = []
        for name, incarnation, sequence in _entries(cursor or {}):
            sender = self.sender(name)
            sender.here = False
            track = sender.track(incarnation)
            track.taken = track.read = track.durable = sequence

    @property
    def names(self) -> list[str]:
        """By their numbers."""
        return list(self._names)

    def sender(self, name: str) -> Sender:
        """The sender of this name, which is connected."""
        found = self._senders.get(name)
        if found is None:
            if len(self._senders) >= MOST_SENDERS:
                self._forget(next((one for one in self._senders.values() if not one.here), None))
            number = self._unused.pop() if self._unused else len(self._names)
            self._names[number : number + 1] = [name]
            found = self._senders[name] = Sender(name, number)
        found.here = True
        return found

    def track(self, name: str, incarnation: int) -> Track | None:
        """One start of a sender, if anything has come from it."""
        sender = self._senders.get(name)
        return sender.tracks.get(incarnation) if sender else None

    def left(self, name: str) -> None:
        """A sender is no longer connected; one of which nothing was taken is not remembered."""
        sender = self._senders.get(name)
        if sender is not None:
            sender.here = False
            if not any(track.taken for track in sender.tracks.values()):
                self._forget(sender)

    def _forget(self, sender: Sender | None) -> None:
        sender = sender or next(iter(self._senders.values()))
        del self._senders[sender.name]
        self._names[sender.number] = ""
        self._unused.append(sender.number)

    def marks(self, name: str, incarnation: int) -> bytes:
        """What to tell a sender about its items; one that has sent none yet is not remembered for it."""
        found = self._senders.get(name)
        return found.marks(incarnation) if found else b""

    def cursor(self) -> Cursor:
        """What was read so far."""
        found = {
            name: [[one.incarnation, one.read] for one in sender.tracks.values() if one.read]
            for name, sender in self._senders.items()
        }
        return {name: marks for name, marks in found.items() if marks}

    def durable(self, cursor: Mapping[str, Sequence[Sequence[int]]]) -> set[str]:
        """All that a cursor covers is durable; names of those to whom that is news."""
        news = set()
        for name, incarnation, sequence in _entries(cursor):
            track = self.track(name, incarnation)
            if track is None or sequence <= track.durable:
                continue
            if sequence > track.read:
                raise UserError(
                    f"the cursor says that {name} was read up to {sequence}, and it was up to {track.read}",
                    fix="pass a cursor of this reader, as its cursor() gave it",
                )
            track.durable = sequence
            news.add(name)
        return news


def _entries(cursor: Mapping[str, Sequence[Sequence[int]]]) -> Iterator[tuple[str, int, int]]:
    try:
        for name, marks in cursor.items():
            for incarnation, sequence in marks:
                found = int(incarnation), int(sequence)
                if not all(0 <= number <= MAX_INTEGER for number in found):
                    raise ValueError(found)
                yield str(name), *found
    except (TypeError, ValueError, AttributeError, OverflowError):
        raise UserError(
            "this is not a cursor: it maps names of writers to [incarnation, sequence] pairs",
            fix="store what cursor() gives, and pass just that",
        ) from None
