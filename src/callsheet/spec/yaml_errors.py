"""Turns the YAML parser's errors into messages that say what to write instead."""

from __future__ import annotations

import yaml

from callsheet.errors import Problem

_MESSAGES: tuple[tuple[str, str, str], ...] = (
    (
        "mapping values are not allowed",
        "unexpected ': '",
        "quote the text if the colon is part of it; otherwise check the indentation of this line and the one above",
    ),
    (
        "did not find expected ',' or ']'",
        "this list in [ ] is malformed",
        "separate its items with commas and close it with ]",
    ),
    (
        "did not find expected ',' or '}'",
        "this mapping in { } is malformed",
        "separate its entries with commas and close it with }",
    ),
    (
        "did not find expected node content",
        "a value is missing inside brackets or braces",
        "add the value, or the closing bracket or brace",
    ),
    (
        "did not find expected '-' indicator",
        "this line is among the items of a list but is not one",
        "start it with '- ', or indent it",
    ),
    (
        "did not find expected key",
        "this does not fit the surrounding mapping",
        "check the indentation; quote text that continues after a quote, a bracket or a brace",
    ),
    (
        "block sequence entries are not allowed",
        "a list cannot start on this line",
        "put '- ' on its own line, or write the list in brackets: [a, b]",
    ),
    (
        "could not find expected ':'",
        "this key has no ': '",
        "write key: value, or check the indentation",
    ),
    (
        "unknown escape character",
        "unknown escape sequence in double quotes",
        "write \\\\ for a backslash, or use single quotes",
    ),
    (
        "expected <document start>",
        "unexpected content after the end of the document",
        "start another document with ---",
    ),
    ("found unknown directive", "this line starts with %, which YAML reserves", "quote it"),
)


def explain(error: yaml.MarkedYAMLError, text: str) -> Problem:
    """The problem behind a syntax error, with its position."""
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    message, fix = _say(error, text, line, column)
    begin = error.context_mark
    if begin and error.context and line - begin.line > 1:
        message += f" (it starts in line {begin.line + 1})"
    return Problem("", message, fix, "", line, column)


def _say(error: yaml.MarkedYAMLError, text: str, line: int, column: int) -> tuple[str, str]:
    problem = error.problem or "it cannot be read"
    lines = text.splitlines()
    here = lines[line - 1][column - 1 : column] if line <= len(lines) else ""
    if here == "\t" or "tab character" in problem:
        return "YAML does not allow a tab here", "indent with spaces"
    if "cannot start any token" in problem:
        return f"unquoted text cannot start with {here}", "quote it"
    if "unexpected end of stream" in problem:
        return "this quoted text is not closed", "add the closing quote"
    for part, message, fix in _MESSAGES:
        if part in problem:
            return message, fix
    return f"invalid YAML: {problem}", "check quotes, brackets and indentation here"
