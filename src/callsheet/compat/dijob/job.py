"""A DIJob under conversion: looks into its tree by place, and keeps what is wrong with it and what gets lost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from callsheet.errors import Problem, did_you_mean
from callsheet.spec import yaml_tree as tree
from callsheet.spec.yaml_tree import Loc, MappingEntry, MappingNode, Node, ScalarNode, SequenceNode


@dataclass(slots=True)
class Job:
    """One document of the file."""

    root: MappingNode
    file: str
    problems: list[Problem] = field(default_factory=list)
    """Mistakes: there is no experiment before they are mended."""
    warnings: list[Problem] = field(default_factory=list)
    """What has no counterpart and is left out, or behaves otherwise."""

    def mistake(self, loc: Loc, message: str, fix: str, *, key: bool = False) -> None:
        """Something that is wrong in the DIJob itself."""
        self.problems.append(self._problem(loc, message, fix, key=key))

    def warn(self, loc: Loc, message: str, fix: str = "", *, key: bool = True) -> None:
        """Something that the experiment will not have."""
        self.warnings.append(self._problem(loc, message, fix, key=key))

    def _problem(self, loc: Loc, message: str, fix: str, *, key: bool) -> Problem:
        line, column, _ = tree.place(self.root, loc, key=key)
        return Problem(tree.path(self.root, loc), message, fix, self.file, line, column)

    def node(self, loc: Loc) -> Node | None:
        """What stands at a place; a key without a value is an absent key."""
        if tree.existing(self.root, loc) != loc:
            return None
        node = tree.find(self.root, loc)
        return None if isinstance(node, ScalarNode) and node.value is None else node

    def near(self, loc: Loc) -> Node:
        """What stands at a place or nearest above it."""
        return tree.find(self.root, loc)

    def keys(self, loc: Loc) -> list[str]:
        """The keys of a mapping; anything else in its place is a mistake."""
        node = self.node(loc)
        if node is not None and not isinstance(node, MappingNode):
            self.mistake(loc, "this must be a mapping", "write it as key: value lines")
        entries = node.entries if isinstance(node, MappingNode) else {}
        return [key for key in entries if self.node((*loc, key)) is not None]

    def items(self, loc: Loc) -> Iterator[Loc]:
        """The place of each item of a list; anything else in its place is a mistake."""
        node = self.node(loc)
        if isinstance(node, SequenceNode):
            yield from ((*loc, step) for step in range(len(node.items)))
        elif node is not None:
            self.mistake(loc, "this must be a list", "begin each item with a hyphen")

    def text(self, loc: Loc) -> str:
        """Text at a place; empty when there is none."""
        node = self.node(loc)
        if node is None:
            return ""
        if isinstance(node, ScalarNode) and isinstance(node.value, str):
            return node.value
        shown = node.text if isinstance(node, ScalarNode) else "this"
        self.mistake(loc, f"{shown} is not text", f'quote it: "{shown}"')
        return ""

    def number(self, loc: Loc, default: int, least: int = 0) -> int:
        """A whole number at a place."""
        node = self.node(loc)
        if node is None:
            return default
        value = node.value if isinstance(node, ScalarNode) else None
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            shown = repr(node.text) if isinstance(node, ScalarNode) else "this"
            self.mistake(loc, f"{shown} is not a whole number from {least}", f"write {max(default, least)}")
            return default
        return value

    def choice(self, loc: Loc, choices: tuple[str, ...]) -> str:
        """One of some words; empty when there is none."""
        word = self.text(loc)
        if word and word not in choices:
            self.mistake(
                loc, f"{word!r} is not one of {', '.join(choices)}", did_you_mean(word, choices, choices[0])
            )
            return ""
        return word

    def only(self, loc: Loc, known: Iterable[str]) -> None:
        """Keys that are not known here are mistakes."""
        among = sorted(known)
        for key in self.keys(loc):
            if key not in among:
                fix = did_you_mean(key, among, f"remove it, or write one of {', '.join(among)}")
                self.mistake((*loc, key), f"there is no key {key!r} here", fix, key=True)


def grow(value: Any, at: Node) -> Node:
    """A tree of ours, in which pieces of the DIJob keep their place and new ones stand where `at` does."""
    where = (at.line, at.column)
    if isinstance(value, ScalarNode | SequenceNode | MappingNode):
        return value
    if isinstance(value, dict):
        made = {key: grow(inner, at) for key, inner in value.items()}
        return MappingNode(
            *where, entries={key: MappingEntry(v, v.line, v.column) for key, v in made.items()}
        )
    if isinstance(value, list):
        return SequenceNode(*where, items=[grow(item, at) for item in value])
    return ScalarNode(*where, value=value, text=str(value), plain=not isinstance(value, str))
