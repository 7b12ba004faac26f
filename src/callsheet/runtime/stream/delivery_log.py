"""What a receiver has got from whom: to recognize duplicates, and to resume after a restart.

A sender is identified by its name, which survives a restart, and by its incarnation, which does not. Each incarnation
numbers its items from 1. For each one the log stores which item was *received* by this process, *consumed* by the
user's program, and made *durable* last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from callsheet.errors import UserError
from callsheet.runtime.link.protocol import MAX_INTEGER, Natural, decode

MAX_INCARNATIONS = 16
"""Incarnations remembered per sender."""
MAX_SENDERS = 1 << 16
"""Senders remembered. Beyond that, disconnected ones are forgotten first: they may resend what was received."""
MAX_SEQUENCE = (1 << 62) - 1
"""The largest sequence number or version."""

Cursor = dict[str, list[list[int]]]
"""For each sender, `[incarnation, sequence]` of its latest incarnations. Can be stored as JSON."""


class Acknowledgement(msgspec.Struct, array_like=True):
    """What a receiver tells a sender about its items."""

    consumed: Natural = 0
    """The last item of this incarnation that need not be resent; received but unread items may still be dropped."""
    durable: tuple[tuple[Natural, Natural], ...] = ()
    """The last durable item of this and earlier incarnations: (incarnation, sequence) each."""


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Acknowledgement)


def decode_acknowledgement(body: bytes) -> Acknowledgement:
    """Decode an acknowledgement; an empty body acknowledges nothing."""
    return decode(_DECODER, body, "an acknowledgement") if body else Acknowledgement()


@dataclass(slots=True)
class Progress:
    """How far the items of one incarnation of a sender have come, as sequence numbers."""

    incarnation: int
    received: int = 0
    consumed: int = 0
    durable: int = 0


@dataclass(slots=True)
class Sender:
    """One sender and its latest incarnations."""

    name: str
    number: int
    """Index in `DeliveryLog.names`."""
    incarnations: dict[int, Progress] = field(default_factory=dict)
    connected: bool = False

    def progress(self, incarnation: int) -> Progress:
        """The progress of one incarnation."""
        progress = self.incarnations.get(incarnation)
        if progress is None:
            while len(self.incarnations) >= MAX_INCARNATIONS:
                del self.incarnations[next(iter(self.incarnations))]
            progress = self.incarnations[incarnation] = Progress(incarnation)
        return progress

    def acknowledgement(self, incarnation: int) -> bytes:
        """What to tell this incarnation."""
        current = self.incarnations.get(incarnation)
        durable = tuple((one.incarnation, one.durable) for one in self.incarnations.values() if one.durable)
        return _ENCODER.encode(Acknowledgement(current.consumed if current else 0, durable))


class DeliveryLog:
    """What a receiver has got from each of its senders."""

    def __init__(self, cursor: Mapping[str, Sequence[Sequence[int]]] | None = None) -> None:
        self._senders: dict[str, Sender] = {}
        self._names: list[str] = []
        self._free_numbers: list[int] = []
        for name, incarnation, sequence in _cursor_entries(cursor or {}):
            sender = self.sender(name)
            sender.connected = False
            progress = sender.progress(incarnation)
            progress.received = progress.consumed = progress.durable = sequence

    @property
    def names(self) -> list[str]:
        """The senders' names, by number."""
        return list(self._names)

    def sender(self, name: str) -> Sender:
        """The sender of this name, now connected."""
        sender = self._senders.get(name)
        if sender is None:
            if len(self._senders) >= MAX_SENDERS:
                self._forget(next((one for one in self._senders.values() if not one.connected), None))
            number = self._free_numbers.pop() if self._free_numbers else len(self._names)
            self._names[number : number + 1] = [name]
            sender = self._senders[name] = Sender(name, number)
        sender.connected = True
        return sender

    def progress(self, name: str, incarnation: int) -> Progress | None:
        """The progress of one incarnation, if anything has arrived from it."""
        sender = self._senders.get(name)
        return sender.incarnations.get(incarnation) if sender else None

    def on_disconnect(self, name: str) -> None:
        """A sender has disconnected; forget it if nothing was received from it."""
        sender = self._senders.get(name)
        if sender is not None:
            sender.connected = False
            if not any(progress.received for progress in sender.incarnations.values()):
                self._forget(sender)

    def _forget(self, sender: Sender | None) -> None:
        sender = sender or next(iter(self._senders.values()))
        del self._senders[sender.name]
        self._names[sender.number] = ""
        self._free_numbers.append(sender.number)

    def acknowledgement(self, name: str, incarnation: int) -> bytes:
        """What to tell a sender. Asking does not create an entry for an unknown sender."""
        sender = self._senders.get(name)
        return sender.acknowledgement(incarnation) if sender else b""

    def cursor(self) -> Cursor:
        """What was consumed so far."""
        consumed = {
            name: [[one.incarnation, one.consumed] for one in sender.incarnations.values() if one.consumed]
            for name, sender in self._senders.items()
        }
        return {name: pairs for name, pairs in consumed.items() if pairs}

    def mark_durable(self, cursor: Mapping[str, Sequence[Sequence[int]]]) -> set[str]:
        """Everything the cursor covers is durable; return the names of the senders to notify."""
        notify = set()
        for name, incarnation, sequence in _cursor_entries(cursor):
            progress = self.progress(name, incarnation)
            if progress is None or sequence <= progress.durable:
                continue
            if sequence > progress.consumed:
                raise UserError(
                    f"the cursor says that {name} was read up to {sequence}, but it was read up to {progress.consumed}",
                    fix="pass a cursor that this reader's cursor() returned",
                )
            progress.durable = sequence
            notify.add(name)
        return notify


def _cursor_entries(cursor: Mapping[str, Sequence[Sequence[int]]]) -> Iterator[tuple[str, int, int]]:
    try:
        for name, pairs in cursor.items():
            for incarnation, sequence in pairs:
                numbers = int(incarnation), int(sequence)
                if not all(0 <= number <= MAX_INTEGER for number in numbers):
                    raise ValueError(numbers)
                yield str(name), *numbers
    except (TypeError, ValueError, AttributeError, OverflowError):
        raise UserError(
            "not a cursor: it must map writers' names to [incarnation, sequence] pairs",
            fix="store what cursor() returns, and pass exactly that",
        ) from None
