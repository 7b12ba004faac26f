"""A DIJob's text as a template that yields exactly what Kubernetes would have made of it.

Kubernetes replaces ``$(NAME)`` where NAME is a variable of the container, and ``$$`` by ``$``; Callsheet leaves both alone
and fills in braces instead. So the first is done here, once and for all, and braces are escaped.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from callsheet.plan.template import escape

_REFERENCE = re.compile(r"\$(?:(?P<dollar>\$)|\((?P<name>[^()]*)\))")


def translate(
    text: str, endpoints: Collection[str], known: Mapping[str, str | None]
) -> tuple[str, list[str]]:
    """The text as a template, and the references that cannot be filled in.

    `known`: the container's variables as templates; None for those whose value is only known at the start.
    """
    made, position, lost = "", 0, []
    for match in _REFERENCE.finditer(text):
        made += escape(text[position : match.start()], endpoints)
        position = match.end()
        name = match["name"]
        value = known.get(name) if name else None
        if match["dollar"]:
            made += "$"
        elif value is not None:
            made += value
        else:
            made += escape(match[0], endpoints)
            lost += [name] if name in known else []
    return made + escape(text[position:], endpoints), lost
