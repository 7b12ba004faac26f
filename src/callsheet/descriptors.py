"""Room for many connections: the usual soft limit of 1,024 descriptors is for programs that use select()."""

from __future__ import annotations

import resource

_MOST = 65_536


def raise_descriptor_limit() -> None:
    """Raise the soft limit to the hard one, within reason."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
