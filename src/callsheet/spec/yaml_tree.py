"""YAML as a tree that keeps the position of each node, so that a mistake can be shown where it was made.

pydantic and the checks use a *loc*: keys and list positions from the root, such as
``("spec", "roles", 1, "connects", 0)``. Nodes can be dropped from a tree; list items then keep their old number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Loc = tuple[str | int, ...]

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_KEY = re.compile(r"[A-Za-z0-9_-]+")
_STEP = re.compile(r"\['(?P<quoted>[^']*)'\]|\[(?P<item>[^\]]*)\]|\.?(?P<key>[A-Za-z0-9_-]+)")


@dataclass(slots=True, eq=False)
class _Piece:
    line: int = 0
    """From 1; 0 if it is not in a file."""
    column: int = 0
    origin: str = ""
    """The command-line flag that it came from; empty if it came from the file."""
    broken: bool = False
    """Whether reading it found a mistake; it is dropped before anything else is checked."""


@dataclass(slots=True, eq=False)
class ScalarNode(_Piece):
    """A single value."""

    value: Any = None
    text: str = ""
    """As written, without quotes."""
    plain: bool = True
    """Whether it was written without quotes."""
    invented: bool = False
    """Whether it was added for a missing name."""


@dataclass(slots=True, eq=False)
class SequenceNode(_Piece):
    """A list."""

    items: list[Node] = field(default_factory=list)
    positions: list[int] | None = None
    """Once an item was dropped: the position that each of the others has in the file."""

    def number(self, step: int) -> int:
        """The position of an item in the file."""
        return step if self.positions is None else self.positions[step]

    def drop(self, step: int) -> None:
        """Remove an item."""
        if self.positions is None:
            self.positions = list(range(len(self.items)))
        del self.items[step], self.positions[step]


@dataclass(slots=True, eq=False)
class MappingEntry:
    """A key with its value; the position is the key's."""

    value: Node
    line: int = 0
    column: int = 0
    origin: str = ""


@dataclass(slots=True, eq=False)
class MappingNode(_Piece):
    """A mapping."""

    entries: dict[str, MappingEntry] = field(default_factory=dict)
    dropped: set[str] = field(default_factory=set)

    def get(self, key: str) -> Node | None:
        """The value under a key."""
        entry = self.entries.get(key)
        return entry.value if entry else None


Node = ScalarNode | SequenceNode | MappingNode


def to_data(node: Node) -> Any:
    """Plain Python data."""
    if isinstance(node, ScalarNode):
        return node.value
    if isinstance(node, SequenceNode):
        return [to_data(item) for item in node.items]
    return {key: to_data(entry.value) for key, entry in node.entries.items()}


def from_data(data: Any) -> Node:
    """A tree without positions."""
    if isinstance(data, dict):
        return MappingNode(entries={str(key): MappingEntry(from_data(value)) for key, value in data.items()})
    if isinstance(data, list):
        return SequenceNode(items=[from_data(item) for item in data])
    return ScalarNode(value=data, text=str(data), plain=not isinstance(data, str))


def copy(node: Node) -> Node:
    """An independent copy; what an alias shared is separate in it."""
    if isinstance(node, ScalarNode):
        return node
    where = (node.line, node.column, node.origin, node.broken)
    if isinstance(node, SequenceNode):
        return SequenceNode(
            *where,
            items=[copy(item) for item in node.items],
            positions=node.positions and list(node.positions),
        )
    entries = {
        key: MappingEntry(copy(e.value), e.line, e.column, e.origin) for key, e in node.entries.items()
    }
    return MappingNode(*where, entries=entries, dropped=set(node.dropped))


def child(node: Node, step: str | int) -> Node | None:
    """One step down; None if there is nothing."""
    if isinstance(node, MappingNode) and isinstance(step, str):
        return node.get(step)
    if isinstance(node, SequenceNode) and isinstance(step, int) and step < len(node.items):
        return node.items[step]
    return None


def existing(root: Node, loc: Loc) -> Loc:
    """The part of a loc that is in the tree."""
    node: Node | None = root
    for depth, step in enumerate(loc):
        node = child(node, step) if node else None
        if node is None:
            return loc[:depth]
    return loc


def find(root: Node, loc: Loc) -> Node:
    """The node at a loc, or the nearest one above it."""
    node = root
    for step in loc:
        below = child(node, step)
        if below is None:
            return node
        node = below
    return node


def place(root: Node, loc: Loc, *, key: bool = False) -> tuple[int, int, str]:
    """Line, column and flag of the value at a loc, or of its key."""
    spot: Node | MappingEntry = find(root, loc)
    if key and loc:
        parent = find(root, loc[:-1])
        if isinstance(parent, MappingNode) and loc[-1] in parent.entries:
            spot = parent.entries[str(loc[-1])]
    return spot.line, spot.column, spot.origin


def path(root: Node, loc: Loc) -> str:
    """A loc as people read it: ``spec.roles[actor].connects[0]``."""
    text = ""
    node: Node | None = root
    for step in loc:
        if isinstance(step, str):
            text += (f".{step}" if text else step) if _KEY.fullmatch(step) else f"['{step}']"
        else:
            text += f"[{_item_name(node, step)}]"
        node = child(node, step) if node else None
    return text


def locate(root: Node, text: str) -> Loc:
    """The loc of a path as people read it, as far as it is in the tree: the reverse of `path`."""
    loc: Loc = ()
    node = root
    for match in _STEP.finditer(text):
        word = match["quoted"] or match["item"] or match["key"] or ""
        step: str | int | None = word
        if isinstance(node, SequenceNode):
            step = next((i for i in range(len(node.items)) if _item_name(node, i) == word), None)
        below = child(node, step) if step is not None else None
        if step is None or below is None:
            break
        loc, node = (*loc, step), below
    return loc


def _item_name(parent: Node | None, step: int) -> str:
    if not isinstance(parent, SequenceNode) or step >= len(parent.items):
        return str(step)
    name = _name(parent.items[step])
    if name and sum(_name(item) == name for item in parent.items) == 1:
        return name
    return str(parent.number(step))


def _name(node: Node) -> str:
    name = node.get("name") if isinstance(node, MappingNode) else None
    if not isinstance(name, ScalarNode) or name.invented or not isinstance(name.value, str):
        return ""
    return name.value if _NAME.fullmatch(name.value) else ""


def drop(root: Node, loc: Loc, *, quietly: bool = False) -> bool:
    """Remove the node at a loc; False if it is not there. `quietly`: as if it had never been there."""
    if not loc:
        return False
    parent, step = find(root, loc[:-1]), loc[-1]
    if existing(root, loc) != loc:
        return False
    if isinstance(parent, MappingNode):
        del parent.entries[str(step)]
        if not quietly:
            parent.dropped.add(str(step))
    elif isinstance(parent, SequenceNode) and isinstance(step, int):
        parent.drop(step)
    return True


def dropped(node: Node, loc: Loc = ()) -> Iterator[Loc]:
    """Where something was dropped: the loc of each key, and of each list that lost an item."""
    if isinstance(node, SequenceNode):
        if node.positions is not None:
            yield loc
        for step, item in enumerate(node.items):
            yield from dropped(item, (*loc, step))
    elif isinstance(node, MappingNode):
        yield from ((*loc, key) for key in node.dropped)
        for key, entry in node.entries.items():
            yield from dropped(entry.value, (*loc, key))


def walk(node: Node, loc: Loc = ()) -> Iterator[tuple[Loc, Node]]:
    """Every node with its loc, parents first."""
    yield loc, node
    if isinstance(node, SequenceNode):
        for step, item in enumerate(node.items):
            yield from walk(item, (*loc, step))
    elif isinstance(node, MappingNode):
        for key, entry in node.entries.items():
            yield from walk(entry.value, (*loc, key))
