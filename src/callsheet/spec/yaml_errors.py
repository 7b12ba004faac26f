"""Turns a YAML parser's complaint into a sentence that says what to write instead."""

from __future__ import annotations

import yaml

from callsheet.errors import Problem

_SAYINGS: tuple[tuple[str, str, str], ...] = (
    (
        "mapping values are not allowed",
        "a ': ' stands where no key can be",
        "quote the text when the colon belongs to it; otherwise check the indentation of this line and the one above",
    ),
    (
        "did not find expected ',' or ']'",
        "a list that begins with [ goes wrong here",
        "separate its items by commas and end it with ]",
    ),
    (
        "did not find expected ',' or '}'",
        "a mapping that begins with { goes wrong here",
        "separate its entries by commas and end it with }",
    ),
    (
        "did not find expected node content",
        "a value is missing in brackets or braces here",
        "write the value, or close what was opened",
    ),
    (
        "did not find expected '-' indicator",
        "this line stands between the items of a list",
        "begin it with '- ', or indent it",
    ),
    (
        "did not find expected key",
        "this does not fit into the mapping around it",
        "check the indentation; quote a text that goes on after a quote, a bracket or a brace",
    ),
    (
        "block sequence entries are not allowed",
        "a list cannot begin on this line",
        "put '- ' on a line of its own, or write the list in brackets: [a, b]",
    ),
    (
        "could not find expected ':'",
        "a key without ': ' stands here",
        "write key: value, or check the indentation",
    ),
    (
        "unknown escape character",
        "a backslash in double quotes begins no known escape",
        "write \\\\ for a backslash, or use single quotes",
    ),
    (
        "expected <document start>",
        "something stands after the end of the document",
        "begin another document with ---",
    ),
    ("found unknown directive", "a line begins with %, which is reserved in YAML", "quote it"),
)


def explain(error: yaml.MarkedYAMLError, text: str) -> Problem:
    """The problem behind a syntax error, at its place."""
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    message, fix = _say(error, text, line, column)
    begin = error.context_mark
    if begin and error.context and line - begin.line > 1:
        message += f" (it began in line {begin.line + 1})"
    return Problem("", message, fix, "", line, column)


def _say(error: yaml.MarkedYAMLError, text: str, line: int, column: int) -> tuple[str, str]:
    problem = error.problem or "it cannot be read"
    lines = text.splitlines()
    here = lines[line - 1][column - 1 : column] if line <= len(lines) else ""
    if here == "\t" or "tab character" in problem:
        return "a tab stands where YAML wants spaces", "indent with spaces"
    if "cannot start any token" in problem:
        return f"no unquoted text can begin with {here}", "quote it"
    if "unexpected end of stream" in problem:
        return "a quoted text has no end", "write the closing quote"
    for part, message, fix in _SAYINGS:
        if part in problem:
            return message, fix
    return f"this is not YAML: {problem}", "check quotes, brackets and indentation here"
