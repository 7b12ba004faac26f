"""Reads YAML from untrusted sources into trees with positions: strict, bounded, and without running anything.

The tree is built from libyaml's events by hand, because PyYAML's own composer recurses, expands aliases without
limit and lets the last of two equal keys win in silence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from callsheet.errors import Problem
from callsheet.spec.yaml_errors import explain
from callsheet.spec.yaml_scalars import resolve_plain
from callsheet.spec.yaml_tree import (
    Loc,
    MappingEntry,
    MappingNode,
    Node,
    ScalarNode,
    SequenceNode,
    path,
    walk,
)

MAX_BYTES = 2 * 1024 * 1024
MAX_DEPTH = 64
MAX_NODES = 100_000

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_FORBIDDEN = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TAG = "tag:yaml.org,2002:"
_KNOWN_TAGS = {f"{_TAG}{name}" for name in ("str", "int", "float", "bool", "null", "map", "seq")}


class Unreadable(Exception):
    """The rest of the text cannot be read; holds the one problem that says why."""

    def __init__(self, message: str, fix: str, line: int, column: int) -> None:
        super().__init__(message)
        self.problem = Problem("", message, fix, "", line, column)


@dataclass(slots=True)
class Document:
    """One YAML document."""

    root: Node
    text: str
    flaws: list[Problem]
    """Duplicate keys, mappings as keys, unknown tags."""


@dataclass(slots=True)
class _Frame:
    """A list or mapping that is still open."""

    node: SequenceNode | MappingNode
    anchor: str | None
    before: int
    """How many nodes had been counted when it started."""
    height: int = 1
    key: ScalarNode | None = None
    """A key that still waits for its value."""
    merges: list[Node] = field(default_factory=list)


@dataclass(slots=True)
class _Anchor:
    node: Node
    size: int
    height: int


@dataclass(slots=True)
class _Flaw:
    owner: Node
    key: str
    message: str
    fix: str
    line: int
    column: int


def decode(data: bytes) -> str:
    """Bytes of a file as text; raises `Unreadable` if they are too many or not UTF-8."""
    if len(data) > MAX_BYTES:
        raise Unreadable(
            "this file is larger than 2 MiB, the limit for an experiment",
            "keep data out of the file: put it in the working directory, in storage or in a volume",
            1,
            1,
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8", errors="replace")
        line, column = _position(before, len(before))
        raise Unreadable(
            f"byte 0x{data[error.start]:02x} is not UTF-8", "save the file with UTF-8 encoding", line, column
        ) from None
    bad = _FORBIDDEN.search(text)
    if bad:
        line, column = _position(text, bad.start())
        raise Unreadable(
            f"YAML does not allow the character U+{ord(bad[0]):04X}",
            'remove it, or write it as an escape in double quotes, such as "\\0"',
            line,
            column,
        )
    return text


def _position(text: str, index: int) -> tuple[int, int]:
    return text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index)


def read(text: str) -> tuple[list[Document], list[Problem]]:
    """The documents of a text, without empty ones, and the problem that stopped reading, if any."""
    documents: list[Document] = []
    try:
        documents.extend(_documents(text))
    except Unreadable as error:
        return documents, [error.problem]
    except yaml.MarkedYAMLError as error:
        return documents, [explain(error, text)]
    if len(documents) == 1:
        documents[0].text = text
    return documents, []


def _documents(text: str) -> Iterator[Document]:
    builder = _Builder()
    start = 0
    for event in yaml.parse(text, Loader=_LOADER):
        kind: type = type(event)
        if kind is yaml.DocumentStartEvent:
            builder, start = _Builder(), _index(event.start_mark)
        elif kind is yaml.DocumentEndEvent:
            root = builder.root
            if root is not None and not (isinstance(root, ScalarNode) and root.value is None):
                yield Document(root, text[start : _index(event.end_mark)], builder.problems())
        elif kind not in (yaml.StreamStartEvent, yaml.StreamEndEvent):
            builder.take(event)


def _index(mark: Any) -> int:
    return int(mark.index)


class _Builder:
    """Turns the events of one document into a tree, counting what it costs."""

    def __init__(self) -> None:
        self.root: Node | None = None
        self._stack: list[_Frame] = []
        self._anchors: dict[str, _Anchor] = {}
        self._count = 0
        self._flaws: list[_Flaw] = []

    def take(self, event: Any) -> None:
        """Add what the event says. Files can be large, so the commonest event comes first."""
        mark = event.start_mark
        line, column = mark.line + 1, mark.column + 1
        kind: type = type(event)
        if kind is yaml.ScalarEvent:
            self._grow(1, 1, line, column)
            node = self._scalar(event, line, column)
            if event.anchor:
                self._anchors[event.anchor] = _Anchor(node, 1, 1)
            self._add(node, 1)
        elif kind is yaml.AliasEvent:
            self._alias(event.anchor, line, column)
        elif kind in (yaml.SequenceEndEvent, yaml.MappingEndEvent):
            self._close()
        else:
            self._grow(1, 1, line, column)
            made = (
                SequenceNode(line, column) if kind is yaml.SequenceStartEvent else MappingNode(line, column)
            )
            self._check_tag(made, event.tag, line, column)
            self._stack.append(_Frame(made, event.anchor, self._count - 1))

    def problems(self) -> list[Problem]:
        """The flaws with their paths, which are known once the tree is complete."""
        if not self._flaws or self.root is None:
            return []
        locs: dict[int, Loc] = {}
        for loc, node in walk(self.root):
            locs.setdefault(id(node), loc)
        return [
            Problem(path(self.root, _at(locs, f)), f.message, f.fix, "", f.line, f.column)
            for f in self._flaws
        ]

    def _grow(self, size: int, height: int, line: int, column: int) -> None:
        self._count += size
        if self._count > MAX_NODES:
            raise Unreadable(
                f"this document has more than {MAX_NODES:,} values (aliases count each time they are used)",
                "an experiment is far smaller: look for an alias that repeats others",
                line,
                column,
            )
        if len(self._stack) + height > MAX_DEPTH:
            raise Unreadable(
                f"this document is nested more than {MAX_DEPTH} levels deep", "flatten it", line, column
            )

    def _alias(self, name: str, line: int, column: int) -> None:
        if any(frame.anchor == name for frame in self._stack):
            raise Unreadable(
                f"*{name} is inside &{name}: an alias cannot contain itself",
                "use another anchor",
                line,
                column,
            )
        anchor = self._anchors.get(name)
        if anchor is None:
            raise Unreadable(
                f"there is no anchor for the alias *{name}",
                f'add &{name} to the value it refers to, or quote it if it is text: "*{name}"',
                line,
                column,
            )
        self._grow(anchor.size, anchor.height, line, column)
        self._add(anchor.node, anchor.height)

    def _scalar(self, event: Any, line: int, column: int) -> ScalarNode:
        text, tag = event.value, event.tag
        plain = not event.style
        if tag is None:
            value = resolve_plain(text) if plain else text
            return ScalarNode(line, column, "", False, value, text, plain)
        resolved = tag in _KNOWN_TAGS and tag != f"{_TAG}str"
        node = ScalarNode(
            line, column, value=resolve_plain(text) if resolved else text, text=text, plain=plain
        )
        self._check_tag(node, tag, line, column)
        return node

    def _check_tag(self, node: Node, tag: str | None, line: int, column: int) -> None:
        if tag is None or tag == "!" or tag in _KNOWN_TAGS:
            return
        node.broken = True
        shown = tag.replace(_TAG, "!!")
        self._flaws.append(_Flaw(node, "", f"unknown tag {shown}", "remove it", line, column))

    def _add(self, node: Node, height: int) -> None:
        if not self._stack:
            self.root = node
            return
        frame = self._stack[-1]
        if height >= frame.height:
            frame.height = height + 1
        if isinstance(frame.node, SequenceNode):
            frame.node.items.append(node)
        elif frame.key is None:
            frame.key = self._key(frame.node, node)
        else:
            self._entry(frame, frame.node, frame.key, node)
            frame.key = None

    def _key(self, owner: MappingNode, node: Node) -> ScalarNode:
        """The key of the next value. A mapping whose key is a list or a mapping is useless as a whole."""
        if isinstance(node, ScalarNode):
            return node
        kind = "mapping" if isinstance(node, MappingNode) else "list"
        inner = ", ".join(node.entries) if isinstance(node, MappingNode) else ""
        fix = f'if this is text, quote it: "{{{{{inner}}}}}"' if inner else "if this is text, quote it"
        owner.broken = True
        self._flaws.append(_Flaw(owner, "", f"a {kind} cannot be a key", fix, owner.line, owner.column))
        return ScalarNode(node.line, node.column, value="", text="", plain=False)

    def _entry(self, frame: _Frame, owner: MappingNode, key: ScalarNode, value: Node) -> None:
        name = key.text
        if key.plain and name == "<<":
            frame.merges.append(value)
        elif key.plain and not isinstance(key.value, str) and str(key.value) != name:
            # kubectl would write the value's own text instead: {on: x} becomes {"true": x}.
            meaning = "a number" if type(key.value) in (int, float) else str(key.value).lower()
            message = f"YAML reads the unquoted key {name} as {meaning}" if name else "a key is empty"
            self._flaws.append(_Flaw(owner, name, message, f'quote it: "{name}"', key.line, key.column))
            owner.dropped.add(name)
        elif name not in owner.entries:
            owner.entries[name] = MappingEntry(value, key.line, key.column)
        elif not owner.broken:
            message = f"duplicate key {name!r}, first used in line {owner.entries[name].line}"
            self._flaws.append(_Flaw(owner, name, message, "keep one of them", key.line, key.column))

    def _close(self) -> None:
        frame = self._stack.pop()
        node = frame.node
        if isinstance(node, MappingNode):
            for value in frame.merges:
                self._merge(node, value)
        if frame.anchor:
            self._anchors[frame.anchor] = _Anchor(node, self._count - frame.before, frame.height)
        self._add(node, frame.height)

    def _merge(self, owner: MappingNode, value: Node) -> None:
        for source in value.items if isinstance(value, SequenceNode) else [value]:
            if not isinstance(source, MappingNode):
                fix = "use << with an alias of a mapping, or with a list of them"
                self._flaws.append(_Flaw(owner, "<<", "<< needs a mapping", fix, source.line, source.column))
                continue
            for key, entry in source.entries.items():
                owner.entries.setdefault(key, entry)


def _at(locs: dict[int, Loc], flaw: _Flaw) -> Loc:
    loc = locs.get(id(flaw.owner), ())
    return (*loc, flaw.key) if flaw.key else loc
