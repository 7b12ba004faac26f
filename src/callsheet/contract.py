"""Every name that crosses a process boundary: environment variables, placeholders, exit codes.

A program in any language takes part in an experiment through these names alone, so they change only with a new API
version. This module imports only the standard library.
"""

from __future__ import annotations

from typing import Final

API_VERSION: Final = "callsheet.dev/v1alpha1"
KIND: Final = "Experiment"

PREFIX: Final = "CALLSHEET_"

EXPERIMENT: Final = "CALLSHEET_EXPERIMENT"
"""The experiment's name."""
RUN: Final = "CALLSHEET_RUN"
"""The run's id."""
ROLE: Final = "CALLSHEET_ROLE"
"""The role's name."""
INDEX: Final = "CALLSHEET_INDEX"
"""The replica's index, from 0; it stays the same across restarts."""
CONTAINER: Final = "CALLSHEET_CONTAINER"
"""The container's name inside its group; the role's name if it has one container."""
REPLICAS: Final = "CALLSHEET_REPLICAS"
"""The number of replicas of the role when this one started."""
ATTEMPT: Final = "CALLSHEET_ATTEMPT"
"""How many times the replica has been restarted in this run."""
STORAGE: Final = "CALLSHEET_STORAGE"
"""Where this run's results go, as a URL: ``<storage>/<experiment>/<run>``."""
KEYS: Final = "CALLSHEET_KEYS"
"""A folder with the run's secret key, readable only by its owner."""
ENCRYPTION: Final = "CALLSHEET_ENCRYPTION"
"""``off`` if `spec.encryption` is `false`; otherwise unset."""
ENCRYPTION_OFF: Final = "off"
ADDRESSES: Final = "CALLSHEET_ADDRESSES"
"""Path of a JSON file with all addresses, kept up to date when elastic roles change."""

ENDPOINT_PORT: Final = "PORT"
"""The endpoint's port."""
ENDPOINT_BIND: Final = "BIND"
"""``host:port`` to listen on; only in the container that binds or exposes the endpoint."""
ENDPOINT_ADDR: Final = "ADDR"
"""``host:port`` to connect to: the copy in the same group if there is one, otherwise the only replica, otherwise the
replica with the same index (modulo their number)."""
ENDPOINT_HOST: Final = "HOST"
"""The host of that address."""
ENDPOINT_ALL: Final = "ALL"
"""The addresses of all replicas that bind it when this replica starts, comma-separated, in index order; unset if that is
longer than 100,000 characters."""

GPUS: Final = "CUDA_VISIBLE_DEVICES"
"""The replica's devices; set if any role of the experiment requests GPUs."""
GPU_RESOURCE: Final = "nvidia.com/gpu"

REGISTRY: Final = "registry.callsheet.dev"
"""The default registry of our images, under our own domain, so that nobody else can publish there."""
IMAGE: Final = "callsheet"
"""Our image, tagged with our version: all our programs, without PyTorch."""
LEARNER_IMAGE: Final = "callsheet-learner"
"""The same with PyTorch."""

WORDS: Final = ("experiment", "run", "role", "index", "container", "replicas", "storage")
"""Placeholders on their own: ``{index}``."""
ENDPOINT_WORDS: Final = ("addr", "host", "port", "bind", "all", "any")
"""Placeholders after an endpoint's name: ``{trajectories.addr}``."""
FILES: Final = "files"
"""``{files.NAME}`` is the path of an injected file."""
MOUNTS: Final = "mounts"
"""``{mounts.NAME}`` is the path where this container sees a volume."""
RESERVED_ENDPOINTS: Final = (FILES, MOUNTS)

LONGEST_VALUE: Final = 100_000
"""Bytes. Linux refuses to start a program with one variable or argument of 128 KiB; ``_ALL`` stays below."""

EXIT_OK: Final = 0
"""The run succeeded, or the command did what it was asked."""
EXIT_FAILED: Final = 1
"""Something else was not available in time, such as a server."""
EXIT_MISTAKE: Final = 2
"""The file, a flag or a name is wrong; nothing was started."""
EXIT_SUPERVISOR_LOST: Final = 70
"""The supervisor was killed, or there is a bug in Callsheet."""
EXIT_CONFIG: Final = 78
"""A replica found a problem that no restart can fix, such as an invalid setting (`EX_CONFIG`). Under the restart
policy `OnFailure` it fails immediately."""
EXIT_DEADLINE: Final = 124
"""The run's deadline passed."""
EXIT_CANNOT_START: Final = 127
"""A replica's program could not be started."""
EXIT_INTERRUPTED: Final = 130
"""Ctrl-C."""
EXIT_STOPPED: Final = 143
"""The run was stopped by `callsheet stop`, by a signal, or because the program that started it exited."""

RENAMED: Final = {
    "duelling": "dueling",
    "normalise": "normalize",
    "normalise_advantages": "normalize_advantages",
    "prioritised": "prioritized",
}
"""Old spellings in experiment files and checkpoints of earlier versions: still read, never written."""


def endpoint_variable(endpoint: str, word: str) -> str:
    """The variable of an endpoint: ``CALLSHEET_TRAJECTORIES_ADDR``."""
    return f"{PREFIX}{endpoint.upper().replace('-', '_')}_{word}"
