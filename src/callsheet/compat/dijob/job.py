"""A DIJob during its conversion: reads its tree by location, and collects its mistakes and what gets lost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from callsheet.errors import Problem, did_you_mean
from callsheet.spec import yaml_tree as tree
from callsheet.spec.yaml_tree import Loc, MappingEntry, MappingNode, Node, ScalarNode, SequenceNode


@dataclass(slots=True)
class DIJob:
    """One document of the file."""

    root: MappingNode
    file: str
    problems: list[Problem] = field(default_factory=list)
    """Mistakes: the job cannot be converted until they are fixed."""
    warnings: list[Problem] = field(default_factory=list)
    """What has no counterpart and is ignored, or behaves differently."""

    def mistake(self, loc: Loc, message: str, fix: str, *, key: bool = False) -> None:
        """Report a mistake in the DIJob itself."""
        self.problems.append(self._problem(loc, message, fix, key=key))

    def warn(self, loc: Loc, message: str, fix: str = "", *, key: bool = True) -> None:
        """Report what the experiment will not have."""
        self.warnings.append(self._problem(loc, message, fix, key=key))

    def _problem(self, loc: Loc, message: str, fix: str, *, key: bool) -> Problem:
        line, column, _ = tree.place(self.root, loc, key=key)
        return Problem(tree.path(self.root, loc), message, fix, self.file, line, column)

    def node(self, loc: Loc) -> Node | None:
        """The node at a location; a key without a value counts as absent."""
        if tree.existing(self.root, loc) != loc:
            return None
        node = tree.find(self.root, loc)
        return None if isinstance(node, ScalarNode) and node.value is None else node

    def nearest(self, loc: Loc) -> Node:
        """The node at a location, or the nearest one above it."""
        return tree.find(self.root, loc)

    def given(self, loc: Loc, keys: Iterable[str]) -> dict[str, Any]:
        """Those of the keys that a mapping has, with their nodes."""
        return {key: self.nearest((*loc, key)) for key in keys if self.node((*loc, key)) is not None}

    def keys(self, loc: Loc) -> list[str]:
        """The keys of a mapping; anything else is a mistake."""
        node = self.node(loc)
        if node is not None and not isinstance(node, MappingNode):
            self.mistake(loc, "this must be a mapping", "write lines of key: value")
        entries = node.entries if isinstance(node, MappingNode) else {}
        return [key for key in entries if self.node((*loc, key)) is not None]

    def items(self, loc: Loc) -> Iterator[Loc]:
        """The location of each item of a list; anything else is a mistake."""
        node = self.node(loc)
        if isinstance(node, SequenceNode):
            yield from ((*loc, step) for step in range(len(node.items)))
        elif node is not None:
            self.mistake(loc, "this must be a list", "start each item with a hyphen")

    def text(self, loc: Loc) -> str:
        """Text at a location; empty if there is none."""
        node = self.node(loc)
        if node is None:
            return ""
        if isinstance(node, ScalarNode) and isinstance(node.value, str):
            return node.value
        shown = node.text if isinstance(node, ScalarNode) else "this"
        self.mistake(loc, f"{shown} is not text", f'quote it: "{shown}"')
        return ""

    def number(self, loc: Loc, default: int, least: int = 0) -> int:
        """A whole number at a location."""
        node = self.node(loc)
        if node is None:
            return default
        value = node.value if isinstance(node, ScalarNode) else None
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            shown = repr(node.text) if isinstance(node, ScalarNode) else "this"
            self.mistake(
                loc, f"{shown} is not a whole number of at least {least}", f"write {max(default, least)}"
            )
            return default
        return value

    def choice(self, loc: Loc, choices: tuple[str, ...]) -> str:
        """One of the choices; empty if there is none."""
        word = self.text(loc)
        if word and word not in choices:
            self.mistake(
                loc, f"{word!r} is not one of {', '.join(choices)}", did_you_mean(word, choices, choices[0])
            )
            return ""
        return word

    def only(self, loc: Loc, known: Iterable[str]) -> None:
        """Report unknown keys."""
        among = sorted(known)
        for key in self.keys(loc):
            if key not in among:
                fix = did_you_mean(key, among, f"remove it, or use one of {', '.join(among)}")
                self.mistake((*loc, key), f"unknown key {key!r}", fix, key=True)


def to_tree(value: Any, at: Node) -> Node:
    """Data as a tree: nodes of the DIJob keep their position, new ones get that of `at`."""
    where = (at.line, at.column)
    if isinstance(value, ScalarNode | SequenceNode | MappingNode):
        return value
    if isinstance(value, dict):
        made = {key: to_tree(inner, at) for key, inner in value.items()}
        return MappingNode(
            *where, entries={key: MappingEntry(v, v.line, v.column) for key, v in made.items()}
        )
    if isinstance(value, list):
        return SequenceNode(*where, items=[to_tree(item, at) for item in value])
    return ScalarNode(*where, value=value, text=str(value), plain=not isinstance(value, str))
