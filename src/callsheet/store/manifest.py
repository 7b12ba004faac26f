"""The records that make a row of sets: numbered, each written once, none changed afterwards.

Under `manifests/` stand the records 1, 2, 3, ...: a *claim* says that a writer has taken over, a *set* lists the parts
of one set. A record is only ever created, at the number after the last one its writer knows of; that number is taken
when somebody else was faster. Who finds a stranger's record there has been replaced (docs/decisions/0041).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeVar

from callsheet.errors import RetryError
from callsheet.store.errors import BadSet, NotFound
from callsheet.store.store import Store

FORMAT = "callsheet.set/1"
FOLDER = "manifests"
_MAX_LISTINGS = 100
"""How often a row is looked at again because something was removed from it."""
T = TypeVar("T")
_KEY = re.compile(rf"{FOLDER}/(\d{{12}})\.json")


@dataclass(frozen=True, slots=True)
class PartInfo:
    """One file of a set."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class ManifestRecord:
    """One record of the row."""

    kind: Literal["claim", "set"]
    number: int
    fence: int
    """The number of its writer's claim: the larger, the later the writer took over."""
    incarnation: str
    """Names the writer: random, made when it claimed."""
    created: float
    order: int | None = None
    """What the writer said of its own place among writers, if anything."""
    name: str = ""
    folder: str = ""
    """Where the parts are."""
    parts: tuple[PartInfo, ...] = ()
    info: Mapping[str, Any] = field(default_factory=dict)
    follows: int | None = None
    """The number of the set that was the latest when its writer claimed, 0 for none; older versions did not tell."""

    def encode(self) -> bytes:
        """As JSON, with a hash of itself."""
        data = {"format": FORMAT} | asdict(self)
        if self.follows is None:
            del data["follows"]
        return _canonical(data | {"sha256": _hash(data)})


def key(number: int) -> str:
    """Where a record stands; in the order of the numbers."""
    return f"{FOLDER}/{number:012d}.json"


def record_numbers(store: Store, *, after: int | None = None) -> list[int]:
    """The records that there are, the newest first."""
    entries = store.list(FOLDER, after=key(after) if after is not None else "")
    return [int(match[1]) for entry in reversed(entries) if (match := _KEY.fullmatch(entry.key))]


def read(store: Store, number: int) -> ManifestRecord:
    """One record; BadSet when it is not what a writer wrote."""
    where = f"{store.url}/{key(number)}"
    fix = f"look at it; an earlier set: latest(store, before={number})"
    try:
        data = json.loads(store.get(key(number)))
        format_ = data.pop("format")
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
        raise BadSet(f"{where} is no manifest: it is damaged, or another program wrote it", fix=fix) from None
    if format_ != FORMAT:
        raise BadSet(
            f"{where} has the format {format_!r}, not {FORMAT!r}",
            fix="use the version that wrote it, or " + fix,
        )
    try:
        checksum = data.pop("sha256")
        parts = tuple(PartInfo(**part) for part in data.pop("parts"))
        record = ManifestRecord(**data, parts=parts)
        intact = checksum == json.loads(record.encode())["sha256"] and _well_typed(record)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        intact = False
    if not intact:
        raise BadSet(f"{where} is damaged: its content does not have its own hash", fix=fix)
    if record.number != number:
        raise BadSet(f"{where} is a copy of record {record.number}", fix=fix)
    return record


def _well_typed(record: ManifestRecord) -> bool:
    """Whether everything is of the kind that it should be: what others compare, join and open."""
    record_numbers = [record.number, record.fence, *(part.size for part in record.parts)]
    texts = [record.incarnation, record.name, record.folder]
    texts += [text for part in record.parts for text in (part.name, part.sha256)]
    return (
        record.kind in ("claim", "set")
        and all(type(number) is int and number >= 0 for number in record_numbers)
        and all(isinstance(text, str) for text in texts)
        and not any(".." in text.split("/") or text.startswith("/") for text in texts)
        and isinstance(record.created, (int, float))
        and (record.order is None or type(record.order) is int)
        and isinstance(record.info, dict)
    )


def walk(store: Store, *, before: int | None = None) -> Iterator[ManifestRecord | BadSet]:
    """The records that count, the newest first; a bad one as the error that says so. NotFound when one was removed
    after the list was made: newer ones are there then, and `with_stable_listing` looks again.

    A writer that was replaced may still have written where an old record had been removed: such a record stands
    behind a claim that its writer did not make, or is a set between a claim and the set that this one follows. It does
    not count."""
    later: ManifestRecord | None = None
    for number in record_numbers(store):
        wanted = before is None or number < before
        try:
            record = read(store, number)
        except BadSet as bad:
            if wanted:
                yield bad
            continue
        if later and (record.fence < later.fence <= number or _written_late(record, later)):
            continue
        later = record
        if wanted:
            yield record


def _written_late(record: ManifestRecord, later: ManifestRecord) -> bool:
    """Whether a set came to its place after that writer had claimed."""
    between = later.follows is not None and later.follows < record.number < later.fence
    return between and record.kind == "set"


def with_stable_listing(read_listing: Callable[[], T]) -> T:
    """What `read_listing` finds in a row from which nothing is removed meanwhile."""
    for _ in range(_MAX_LISTINGS):
        try:
            return read_listing()
        except NotFound as gone:
            last = gone
    raise RetryError(f"records are removed faster than they can be read: {last.message}", fix="try again")


def all_records(store: Store) -> list[ManifestRecord | BadSet]:
    """All records that count, as they stand at one moment."""
    return with_stable_listing(lambda: list(walk(store)))


def _canonical(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False).encode()


def _hash(data: Mapping[str, Any]) -> str:
    return hashlib.sha256(_canonical(data)).hexdigest()
