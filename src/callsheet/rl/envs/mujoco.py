"""Keeping MuJoCo from writing `MUJOCO_LOG.TXT` into the working folder, which may be read-only or the user's own."""

from __future__ import annotations

import importlib
import logging

log = logging.getLogger("callsheet.rl")
_said: set[str] = set()


def quieten() -> None:
    """Have its warnings logged, each of them once."""
    try:
        library = importlib.import_module("mujoco")
    except ImportError:
        return  # the environment itself says so, better
    library.set_mju_user_warning(_warned)


def _warned(text: str | bytes) -> None:
    said = text.decode(errors="replace") if isinstance(text, bytes) else text
    if said not in _said:
        _said.add(said)
        log.warning("MuJoCo: %s", said.strip())
