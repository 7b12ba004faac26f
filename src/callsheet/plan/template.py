"""The closed grammar of braces in `command`, `args` and `env`: which ones are ours, and what they mean.

``{word}`` and ``{endpoint.word}`` with our own words are placeholders to fill; ``{{index}}`` writes a literal
``{index}``; every other brace is the user's (JSON, shell, templates) and stays as it is, byte for byte. A brace
after a dollar sign is the shell's. What looks like a misspelled placeholder is reported rather than passed on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

from callsheet import contract
from callsheet.errors import nearest

_NAME = r"[A-Za-z][A-Za-z0-9_-]*"
_PLACEHOLDER = re.compile(
    rf"\{{\{{(?P<escaped>{_NAME}(?:\.[A-Za-z0-9._-]+)?)\}}\}}|(?<!\$)\{{(?P<head>{_NAME})(?:\.(?P<tail>[A-Za-z0-9._-]+))?\}}"
)

_MISSPELLED = 0.75
"""How near a word must come to one of ours to be taken for a misspelling of it."""
_BRACES = re.compile(r"\{[A-Za-z][A-Za-z0-9_.-]*\}")


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A place to fill: ``{head}`` or ``{head.tail}``."""

    head: str
    tail: str = ""

    def __str__(self) -> str:
        return f"{{{self.head}.{self.tail}}}" if self.tail else f"{{{self.head}}}"


Template = tuple[str | Placeholder, ...]
"""Text and placeholders in their order."""


def parse(text: str, endpoints: Collection[str]) -> Template:
    """Split a string into literal text and placeholders. `endpoints`: every endpoint's name in the experiment."""
    parts: list[str | Placeholder] = []
    literal = ""
    position = 0
    for match in _PLACEHOLDER.finditer(text):
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
            parts.append(Placeholder(match["head"], match["tail"] or ""))
        else:
            literal += match[0]
    literal += text[position:]
    if literal or not parts:
        parts.append(literal)
    return tuple(parts)


def _is_ours(head: str, tail: str, endpoints: Collection[str]) -> bool:
    """Whether ``{head.tail}`` is a placeholder, perhaps misspelled."""
    if not tail:
        return head in contract.WORDS or bool(nearest(head, contract.WORDS, cutoff=_MISSPELLED))
    if head in contract.RESERVED_ENDPOINTS or head in endpoints or tail in contract.ENDPOINT_WORDS:
        return True
    return bool(
        nearest(head, endpoints, cutoff=_MISSPELLED)
        and nearest(tail, contract.ENDPOINT_WORDS, cutoff=_MISSPELLED)
    )


def mistake(
    placeholder: Placeholder, endpoints: Collection[str], files: Collection[str], mounts: Collection[str]
) -> tuple[str, str]:
    """What is wrong with a placeholder and how to fix it; two empty strings if nothing is."""
    head, tail = placeholder.head, placeholder.tail
    known: Collection[str] = contract.ENDPOINT_WORDS
    word, form = tail, "{" + head + ".%s}"
    otherwise = f"write {{{placeholder}}} for a literal {placeholder}"
    if not tail:
        word, known, form = head, contract.WORDS, "{%s}"
    elif head == contract.FILES:
        known, otherwise = files, "add it under spec.files"
    elif head == contract.MOUNTS:
        known, otherwise = mounts, "add it to this container's volumeMounts"
    elif head not in endpoints:
        word, known, form = head, endpoints, "{%s." + tail + "}"
    if word in known:
        return "", ""
    message = f"{placeholder} does not resolve: there is no {word!r}"
    if close := nearest(word, known):
        return message, f"did you mean {form % close}? Or {otherwise}"
    choices = ", ".join(form % name for name in sorted(known))
    return message, f"use one of {choices}, or {otherwise}" if choices else otherwise


def fill(template: Template, value: Callable[[Placeholder], str]) -> str:
    """The text with every placeholder filled."""
    return "".join([part if isinstance(part, str) else value(part) for part in template])


def escape(text: str, endpoints: Collection[str]) -> str:
    """The text as a template that yields exactly this text."""

    def doubled(match: re.Match[str]) -> str:
        return f"{{{match[0]}}}" if placeholders(parse(match[0], endpoints)) else match[0]

    return _BRACES.sub(doubled, text)


def placeholders(template: Template) -> list[Placeholder]:
    """The placeholders alone."""
    return [part for part in template if isinstance(part, Placeholder)]
