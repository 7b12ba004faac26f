"""Changes a document from the command line: ``--set roles.actor.replicas=8``.

The tree is changed, so that the same checks find a mistake in the value and report it for the flag.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from callsheet.errors import Problem, UserError, did_you_mean
from callsheet.spec.yaml_reader import read
from callsheet.spec.yaml_tree import MappingEntry, MappingNode, Node, ScalarNode, SequenceNode, copy, walk

_STEP = re.compile(r"""\.?(?:\[(?P<quote>['"]?)(?P<bracket>.+?)(?P=quote)\]|(?P<word>[^.\[\]]+))""")


@dataclass(frozen=True, slots=True)
class Override:
    """One ``--set``."""

    flag: str
    """As given: ``--set roles.actor.replicas=8``."""
    steps: tuple[str, ...]
    value: Node


def parse_override(text: str) -> Override:
    """Read ``path=value``; the value is YAML on one line."""
    flag = f"--set {text}"
    path, equals, value = text.partition("=")
    steps = _steps(path)
    if not equals or not steps:
        raise UserError(f"{flag} is not path=value", fix="write, for example, --set roles.actor.replicas=8")
    if steps[0] == "spec":
        raise UserError(
            f"{flag} starts with spec",
            fix=f"leave spec out: --set {text.removeprefix('spec').lstrip('.')}",
        )
    documents, problems = read(value)
    if problems or len(documents) > 1 or any(document.flaws for document in documents):
        said = [*problems, *(flaw for document in documents for flaw in document.flaws)]
        why = f": {said[0].message}" if said else ""
        raise UserError(
            f"the value of {flag} cannot be read{why}", fix="write one YAML value, quoted for the shell"
        )
    node: Node = documents[0].root if documents else ScalarNode(value=None, text="")
    return Override(flag, steps, _marked(node, flag))


def _steps(path: str) -> tuple[str, ...]:
    steps: list[str] = []
    position = 0
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None:
            return ()
        steps.append(match["bracket"] or match["word"])
        position = match.end()
    return tuple(steps)


def _marked(node: Node, flag: str) -> Node:
    """The same tree, with the flag as its position."""
    node = copy(node)
    for _, piece in walk(node):
        piece.line, piece.column, piece.origin = 0, 0, flag
        if isinstance(piece, MappingNode):
            for entry in piece.entries.values():
                entry.line, entry.column, entry.origin = 0, 0, flag
    return node


def apply(root: Node, override: Override) -> Problem | None:
    """Change the tree; returns the problem if the path leads nowhere."""
    node: Node | None = root
    path = ""
    for step in ("spec", *override.steps[:-1]):
        node, problem = _below(node, step, path, override.flag)
        if node is None:
            return problem
        path = f"{path}.{step}" if path else step
    last = override.steps[-1]
    if isinstance(node, MappingNode):
        node.entries[last] = MappingEntry(override.value, origin=override.flag)
        return None
    if isinstance(node, SequenceNode):
        position = _find(node, last)
        if position is not None:
            node.items[position] = override.value
            return None
    return _no_such_step(node, last, path, override.flag)


def _below(node: Node | None, step: str, path: str, flag: str) -> tuple[Node | None, Problem | None]:
    """One step down, creating what is missing."""
    if isinstance(node, MappingNode):
        present = node.get(step)
        if present is None or (isinstance(present, ScalarNode) and present.value is None):
            node.entries[step] = MappingEntry(MappingNode(origin=flag), origin=flag)
        return node.entries[step].value, None
    position = _find(node, step) if isinstance(node, SequenceNode) else None
    if isinstance(node, SequenceNode) and position is not None:
        return node.items[position], None
    return None, _no_such_step(node, step, path, flag)


def _find(node: SequenceNode, step: str) -> int | None:
    """An item of a list by its name or its number."""
    names = [_name(item) for item in node.items]
    if step in names:
        return names.index(step)
    return int(step) if step.isdecimal() and int(step) < len(node.items) else None


def _no_such_step(node: Node | None, step: str, path: str, flag: str) -> Problem:
    if not isinstance(node, SequenceNode):
        return Problem(path, f"this is a single value and has no {step!r}", "shorten the path", flag)
    known = [name for name in map(_name, node.items) if name]
    fix = f"use one of {', '.join(known)}" if known else f"write a number below {len(node.items)}"
    return Problem(path, f"there is no {step!r} here", did_you_mean(step, known, fix), flag)


def _name(item: Node) -> str:
    name = item.get("name") if isinstance(item, MappingNode) else None
    return name.text if isinstance(name, ScalarNode) else ""
