"""Learning on top of the data plane: environments, networks, algorithms and the roles that run them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from callsheet.rl.loading import LoadedPolicy, load_policy

__all__ = ["LoadedPolicy", "load_policy"]


def __getattr__(name: str) -> Any:
    """Import what is asked for, and nothing before: every actor imports this package."""
    if name in __all__:
        from callsheet.rl import loading

        return getattr(loading, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
