"""The closed grammar of braces in `command`, `args` and `env`: which ones are ours, and what they mean.

``{word}`` and ``{endpoint.word}`` with our own words are holes to fill; ``{{index}}`` writes a literal
``{index}``; every other brace is the user's (JSON, shell, templates) and stays as it is, byte for byte. A brace
after a dollar sign is the shell's. What looks like a misspelled hole is reported rather than passed on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

from callsheet import contract
from callsheet.errors import nearest

_NAME = r"[A-Za-z][A-Za-z0-9_-]*"
_HOLE = re.compile(
    rf"\{{\{{(?P<escaped>{_NAME}(?:\.[A-Za-z0-9._-]+)?)\}}\}}|(?<!\$)\{{(?P<head>{_NAME})(?:\.(?P<tail>[A-Za-z0-9._-]+))?\}}"
)

_MISSPELLED = 0.75
"""How near a word must come to one of ours to be taken for a misspelling of it."""
_BRACES = re.compile(r"\{[A-Za-z][A-Za-z0-9_.-]*\}")


@dataclass(frozen=True, slots=True)
class Hole:
    """A place to fill: ``{head}`` or ``{head.tail}``."""

    head: str
    tail: str = ""

    def __str__(self) -> str:
        return f"{{{self.head}.{self.tail}}}" if self.tail else f"{{{self.head}}}"


Template = tuple[str | Hole, ...]
"""Text and holes in their order."""


def parse(text: str, endpoints: Collection[str]) -> Template:
    """Split a string into literal text and holes. `endpoints`: every endpoint's name in the experiment."""
    parts: list[str | Hole] = []
    literal = ""
    position = 0
    for match in _HOLE.finditer(text):
        literal += text[position : match.start()]
        position = match.end()
        if match["escaped"]:
            head, _, tail = match["escaped"].partition(".")
            ours = _is_ours(head, tail, endpoints)
            literal += match[0][1:-1] if ours else match[0]
        elif _is_ours(match["head"], match["tail"] or "", endpoints):
            if literal:
                parts.append(literal)
            literal = ""
            parts.append(Hole(match["head"], match["tail"] or ""))
        else:
            literal += match[0]
    literal += text[position:]
    if literal or not parts:
        parts.append(literal)
    return tuple(parts)


def _is_ours(head: str, tail: str, endpoints: Collection[str]) -> bool:
    """Whether ``{head.tail}`` is a hole, rightly spelt or not."""
    if not tail:
        return head in contract.WORDS or bool(nearest(head, contract.WORDS, cutoff=_MISSPELLED))
    if head in contract.RESERVED_ENDPOINTS or head in endpoints or tail in contract.ENDPOINT_WORDS:
        return True
    return bool(
        nearest(head, endpoints, cutoff=_MISSPELLED)
        and nearest(tail, contract.ENDPOINT_WORDS, cutoff=_MISSPELLED)
    )


def mistake(
    hole: Hole, endpoints: Collection[str], files: Collection[str], mounts: Collection[str]
) -> tuple[str, str]:
    """What is wrong with a hole and how to mend it; two empty strings when it is right."""
    literal = f"write {{{hole}}} for a literal {hole}"
    if not hole.tail:
        wrong = hole.head not in contract.WORDS
        return _unknown(str(hole), hole.head, contract.WORDS, "{%s}", literal) if wrong else ("", "")
    if hole.head == contract.FILES:
        wrong = hole.tail not in files
        return (
            _unknown(str(hole), hole.tail, files, "{files.%s}", "add it under spec.files")
            if wrong
            else ("", "")
        )
    if hole.head == contract.MOUNTS:
        wrong = hole.tail not in mounts
        fix = "add it to this container's volumeMounts"
        return _unknown(str(hole), hole.tail, mounts, "{mounts.%s}", fix) if wrong else ("", "")
    if hole.head not in endpoints:
        return _unknown(str(hole), hole.head, endpoints, "{%s." + hole.tail + "}", literal)
    if hole.tail not in contract.ENDPOINT_WORDS:
        return _unknown(str(hole), hole.tail, contract.ENDPOINT_WORDS, "{" + hole.head + ".%s}", literal)
    return "", ""


def _unknown(shown: str, word: str, among: Collection[str], form: str, otherwise: str) -> tuple[str, str]:
    message = f"{shown} does not resolve: there is no {word!r}"
    if close := nearest(word, among):
        return message, f"did you mean {form % close}? Or {otherwise}"
    known = ", ".join(form % name for name in sorted(among))
    return message, f"write one of {known}, or {otherwise}" if known else otherwise


def fill(template: Template, value: Callable[[Hole], str]) -> str:
    """The text with every hole filled."""
    return "".join([part if isinstance(part, str) else value(part) for part in template])


def escape(text: str, endpoints: Collection[str]) -> str:
    """The text as a template that yields exactly this text."""

    def doubled(match: re.Match[str]) -> str:
        return f"{{{match[0]}}}" if holes(parse(match[0], endpoints)) else match[0]

    return _BRACES.sub(doubled, text)


def holes(template: Template) -> list[Hole]:
    """The holes alone."""
    return [part for part in template if isinstance(part, Hole)]
