"""What an unquoted word in YAML means: exactly what kubectl takes it for, so that one file has one meaning.

YAML 1.1 booleans (``yes``, ``on``, ``y``) are booleans, ``0x``, ``0o``, ``0b`` and a leading zero make integers; dates and
base-60 numbers stay text.
"""

from __future__ import annotations

import re

Value = str | int | float | bool | None

_WORDS: dict[str, bool | None] = {"": None, "~": None}
for _word, _meaning in {
    "null": None,
    "true": True,
    "yes": True,
    "on": True,
    "y": True,
    "false": False,
    "no": False,
    "off": False,
    "n": False,
}.items():
    _WORDS |= {_word: _meaning, _word.capitalize(): _meaning, _word.upper(): _meaning}

_SPECIAL = {
    f"{sign}{word}": float(sign + word[1:]) for sign in ("", "+", "-") for word in (".inf", ".Inf", ".INF")
} | {word: float("nan") for word in (".nan", ".NaN", ".NAN")}
_INTEGER = re.compile(r"[-+]?(0[xX][0-9a-fA-F]+|0[oO][0-7]+|0[bB][01]+|0[0-7]*|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_LONGEST_NUMBER = 100
"""Longer runs of digits stay text: no field takes them, and Python refuses to convert the longest."""


def resolve_plain(text: str) -> Value:
    """The value of an unquoted scalar."""
    if text in _WORDS:
        return _WORDS[text]
    if text in _SPECIAL:
        return _SPECIAL[text]
    if text[0] not in "+-.0123456789" or len(text) > _LONGEST_NUMBER:
        return text
    bare = text if text[0] == "." else text.replace("_", "")
    if _INTEGER.fullmatch(bare):
        return _integer(bare)
    if _FLOAT.fullmatch(bare):
        return float(bare)
    return text


def _integer(text: str) -> int:
    digits = text.lstrip("+-")
    octal = len(digits) > 1 and digits[0] == "0" and digits[1].isdecimal()
    value = int(digits, 8) if octal else int(digits, 0)
    return -value if text[0] == "-" else value
