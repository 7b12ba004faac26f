"""Learning on top of the data plane: environments, networks, algorithms and the roles that run them.

Names are loaded when first used: every actor imports this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from callsheet import lazy

if TYPE_CHECKING:
    from callsheet.rl.loading import LoadedPolicy, load_policy

__all__ = ["LoadedPolicy", "load_policy"]

__getattr__, __dir__ = lazy.names(__name__, {"LoadedPolicy": "loading", "load_policy": "loading"})
