"""The numbered, immutable records behind sets of parts.

Under `manifests/` are records 1, 2, 3, ...: a *claim* says that a writer has taken over, a *set* lists the parts of
one set. Records are only created, each with the number after the last one its writer knows of. If another writer's
record is already there, this writer has been replaced (docs/decisions/0041).
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
"""How often to list again because a record was removed meanwhile."""
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
    """One record."""

    kind: Literal["claim", "set"]
    number: int
    fence: int
    """The number of its writer's claim; larger for later writers."""
    incarnation: str
    """Identifies the writer: random, created with the claim."""
    created: float
    order: int | None = None
    """The writer's own position among writers, if it gave one."""
    name: str = ""
    folder: str = ""
    """Where the parts are."""
    parts: tuple[PartInfo, ...] = ()
    info: Mapping[str, Any] = field(default_factory=dict)
    follows: int | None = None
    """The number of the latest set when the writer claimed, 0 if none; older versions did not record it."""

    def encode(self) -> bytes:
        """Encode as JSON, including a hash of itself."""
        data = {"format": FORMAT} | asdict(self)
        if self.follows is None:
            del data["follows"]
        return _canonical(data | {"sha256": _hash(data)})


def key(number: int) -> str:
    """The key of a record; keys sort by number."""
    return f"{FOLDER}/{number:012d}.json"


def record_numbers(store: Store, *, after: int | None = None) -> list[int]:
    """The existing records, newest first."""
    entries = store.list(FOLDER, after=key(after) if after is not None else "")
    return [int(match[1]) for entry in reversed(entries) if (match := _KEY.fullmatch(entry.key))]


def read(store: Store, number: int) -> ManifestRecord:
    """Read one record; `BadSet` if it is damaged."""
    where = f"{store.url}/{key(number)}"
    fix = f"inspect it, or use an earlier set: latest(store, before={number})"
    try:
        data = json.loads(store.get(key(number)))
        format_ = data.pop("format")
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
        raise BadSet(
            f"{where} is not a manifest: it is damaged, or another program wrote it", fix=fix
        ) from None
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
        raise BadSet(f"{where} is damaged: its hash does not match", fix=fix)
    if record.number != number:
        raise BadSet(f"{where} is a copy of record {record.number}", fix=fix)
    return record


def _well_typed(record: ManifestRecord) -> bool:
    """Whether all fields have the right types and no path escapes the store."""
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
    """The valid records, newest first; a damaged one as its error. Raises `NotFound` if a record was removed after
    the listing: then there are newer ones, and `with_stable_listing` tries again.

    A replaced writer may still have written where an old record had been removed: such a record comes after a claim
    of another writer, or is a set between a claim and the set that the claim follows. It is skipped.
    """
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
    """Whether a set was written after that writer had claimed."""
    between = later.follows is not None and later.follows < record.number < later.fence
    return between and record.kind == "set"


def with_stable_listing(read_listing: Callable[[], T]) -> T:
    """Call `read_listing` until no record is removed meanwhile."""
    for _ in range(_MAX_LISTINGS):
        try:
            return read_listing()
        except NotFound as gone:
            last = gone
    raise RetryError(f"records are deleted faster than they can be read: {last.message}", fix="try again")


def all_records(store: Store) -> list[ManifestRecord | BadSet]:
    """All valid records, as of one point in time."""
    return with_stable_listing(lambda: list(walk(store)))


def _canonical(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False).encode()


def _hash(data: Mapping[str, Any]) -> str:
    return hashlib.sha256(_canonical(data)).hexdigest()
