"""Turns a YAML document into an experiment and finds every wrong shape on the way.

A document with mistakes still yields an experiment if possible: each wrong value is removed, as little as will do, so that
the rest can be checked in the same pass.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from callsheet import contract
from callsheet.errors import Problem, nearest
from callsheet.spec import yaml_tree as tree
from callsheet.spec.experiment import Experiment
from callsheet.spec.validation_errors import ShapeMistake, shape_mistakes
from callsheet.spec.yaml_reader import Document
from callsheet.spec.yaml_tree import Loc, MappingNode, Node, ScalarNode, SequenceNode

MAX_MISTAKES = 500
"""Nobody reads more at once, and finding a suggestion for each takes time."""


@dataclass(frozen=True, slots=True)
class MentionedNames:
    """Every name that the document mentions, in the right place or not: none of them is unknown."""

    roles: frozenset[str] = frozenset()
    endpoints: frozenset[str] = frozenset()
    volumes: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()


@dataclass(slots=True)
class ParsedExperiment:
    """An experiment parsed from a document, with all mistakes found so far."""

    root: Node
    """The tree behind the experiment, without what is wrong."""
    file: str
    problems: list[Problem] = field(default_factory=list)
    experiment: Experiment | None = None
    """None if the document is too far from one."""
    names: MentionedNames = MentionedNames()

    def report(self, loc: Loc, message: str, fix: str, *, key: bool = False) -> None:
        """Add a problem at a location of the tree."""
        self.problems.append(self.problem(loc, message, fix, key=key))

    def problem(self, loc: Loc, message: str, fix: str, *, key: bool = False) -> Problem:
        """A problem at a location of the tree."""
        line, column, origin = tree.place(self.root, loc, key=key)
        return Problem(tree.path(self.root, loc), message, fix, origin or self.file, line, column)


def parse_experiment(document: Document, file: str) -> ParsedExperiment:
    """Parse a document, collecting every wrong shape."""
    parsed = ParsedExperiment(
        tree.copy(document.root), file, [replace(flaw, file=file) for flaw in document.flaws]
    )
    root = parsed.root
    if not isinstance(root, MappingNode):
        shown = "a list" if isinstance(root, SequenceNode) else repr(root.text)
        fix = f"start with apiVersion: {contract.API_VERSION} and kind: {contract.KIND}"
        parsed.report((), f"an experiment is a mapping, not {shown}", fix)
        return parsed
    if root.broken:
        return parsed
    parsed.names = _names(root)
    for loc in [loc for loc, node in tree.walk(root) if node.broken][::-1]:
        tree.drop(root, loc)
    if _check_header(parsed, root):
        _validate(parsed)
    return parsed


def is_experiment(root: Node) -> bool:
    """Whether a document in a folder is meant to be an experiment."""
    if not isinstance(root, MappingNode):
        return False
    version, kind = root.get("apiVersion"), root.get("kind")
    if isinstance(version, ScalarNode) and version.text:
        return version.text.startswith("callsheet.dev/")
    return isinstance(kind, ScalarNode) and kind.text == contract.KIND


def _check_header(parsed: ParsedExperiment, root: MappingNode) -> bool:
    """Check apiVersion and kind; False if this is something else altogether."""
    kind = root.get("kind")
    if isinstance(kind, ScalarNode) and kind.text and not nearest(kind.text, [contract.KIND]):
        fix = f"write kind: {contract.KIND}, or remove the document"
        parsed.report(("kind",), f"this document has kind {kind.text}, not {contract.KIND}", fix)
        return False
    for key, wanted in (("apiVersion", contract.API_VERSION), ("kind", contract.KIND)):
        node = root.get(key)
        if node is None or (isinstance(node, ScalarNode) and node.value is None):
            if key not in root.dropped:
                problem = parsed.problem((), f"{key} is missing", f"add {key}: {wanted}")
                parsed.problems.append(replace(problem, path=key))
        elif not isinstance(node, ScalarNode) or node.value != wanted:
            shown = repr(node.text) if isinstance(node, ScalarNode) else "not text"
            parsed.report((key,), f"{key} is {shown}", f"write {key}: {wanted}")
        tree.drop(root, (key,), quietly=True)
    return True


def _validate(parsed: ParsedExperiment) -> None:
    """Validate, report what is wrong and remove it, until an experiment is left."""
    reported = False
    while True:
        try:
            parsed.experiment = Experiment.model_validate(
                tree.to_data(parsed.root), by_alias=True, by_name=False
            )
            return
        except ValidationError as error:
            errors = error.errors(include_url=False)
        if _drop_nulls(parsed.root, errors):
            continue
        mistakes = shape_mistakes(parsed.root, errors[:MAX_MISTAKES])
        if not reported:
            for mistake in mistakes:
                if mistake.message:
                    parsed.report(mistake.loc, mistake.message, mistake.fix, key=mistake.at_key)
            reported = True
        if len(errors) > MAX_MISTAKES:
            message = f"this document has {len(errors):,} mistakes; the first {MAX_MISTAKES} are shown"
            parsed.report((), message, "fix these first")
            return
        if not _remove(parsed.root, mistakes):
            return


def _drop_nulls(root: Node, errors: list[ErrorDetails]) -> bool:
    """A key without a value is an absent key, as on Kubernetes."""
    nulls = []
    for error in errors:
        loc = tree.existing(root, error["loc"])
        node = tree.find(root, loc)
        if loc and isinstance(loc[-1], str) and isinstance(node, ScalarNode) and node.value is None:
            nulls.append(loc)
    for loc in nulls:
        tree.drop(root, loc, quietly=True)
    return bool(nulls)


def _remove(root: Node, mistakes: list[ShapeMistake]) -> bool:
    """Remove what is wrong; False if nothing is left to remove."""
    changed = [_invent(root, f.loc) for f in mistakes if f.missing]
    wrong = [f.loc for f in mistakes if not f.missing]
    # What lacks more than a name is removed as a whole.
    wrong += [f.loc[:-1] for f in mistakes if f.missing and f.loc[-1] not in ("name", "metadata")]
    # The last first, so that positions in lists stay right; parts before the whole.
    changed += [tree.drop(root, loc) for loc in sorted(set(wrong), key=_order, reverse=True)]
    return any(changed)


def _order(loc: Loc) -> tuple[tuple[int, str], ...]:
    return tuple((step, "") if isinstance(step, int) else (-1, step) for step in loc)


def _invent(root: Node, loc: Loc) -> bool:
    """Invent a name for what has none, so that the rest of it can be checked."""
    parent = tree.find(root, loc[:-1])
    if not isinstance(parent, MappingNode):
        return False
    where = (parent.line, parent.column, parent.origin)
    if loc[-1] == "name":
        name = "x" + "".join(f"-{step}" for step in loc if isinstance(step, int))
        parent.entries["name"] = tree.MappingEntry(ScalarNode(*where, value=name, text=name, invented=True))
    elif loc == ("metadata",):
        parent.entries["metadata"] = tree.MappingEntry(MappingNode(*where))
    else:
        return False
    return True


def _names(root: MappingNode) -> MentionedNames:
    spec = root.get("spec")
    if not isinstance(spec, MappingNode):
        return MentionedNames()
    roles = spec.get("roles")
    listed = roles.items if isinstance(roles, SequenceNode) else []
    groups = [role.get("containers") for role in listed if isinstance(role, MappingNode)]
    containers = [*listed, *(c for group in groups if isinstance(group, SequenceNode) for c in group.items)]
    bound = [c.get(key) for c in containers if isinstance(c, MappingNode) for key in ("binds", "exposes")]
    return MentionedNames(
        roles=frozenset(_mentioned(roles)),
        endpoints=frozenset(name for node in bound for name in _mentioned(node)),
        volumes=frozenset(_mentioned(spec.get("volumes"))),
        files=frozenset(_mentioned(spec.get("files"))),
    )


def _mentioned(node: Node | None) -> list[str]:
    """What may be a name in a list of named things, however it was written."""
    if isinstance(node, ScalarNode):
        return [node.text]
    if isinstance(node, MappingNode):
        return list(node.entries)
    mentioned = []
    for item in node.items if node else []:
        name = item.get("name") if isinstance(item, MappingNode) else item
        mentioned += _mentioned(name)
        if isinstance(item, MappingNode) and name is None:
            # The name may be the value of a misspelled key, or the key itself.
            values = [entry.value for entry in item.entries.values()]
            mentioned += [*item.entries, *(value.text for value in values if isinstance(value, ScalarNode))]
    return mentioned
