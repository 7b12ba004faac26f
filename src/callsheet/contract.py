"""Every name that crosses a process boundary: environment variables, words of the template grammar, exit codes.

A program in any language takes part in an experiment through these names alone, so they change only with
a new API version. Nothing here imports anything but the standard library.
"""

from __future__ import annotations

from typing import Final

API_VERSION: Final = "callsheet.dev/v1alpha1"
KIND: Final = "Experiment"

PREFIX: Final = "CALLSHEET_"

EXPERIMENT: Final = "CALLSHEET_EXPERIMENT"
"""The experiment's name."""
RUN: Final = "CALLSHEET_RUN"
"""The id of this execution of the experiment."""
ROLE: Final = "CALLSHEET_ROLE"
"""The name of the process's role."""
INDEX: Final = "CALLSHEET_INDEX"
"""Which replica of the role this is, from 0; the same after every restart."""
CONTAINER: Final = "CALLSHEET_CONTAINER"
"""The container's name inside its group; the role's name when the role has one container."""
REPLICAS: Final = "CALLSHEET_REPLICAS"
"""How many replicas the role had when this replica started."""
ATTEMPT: Final = "CALLSHEET_ATTEMPT"
"""How often the replica was restarted in this run, from 0."""
STORAGE: Final = "CALLSHEET_STORAGE"
"""Where this run's results go, as a URL: ``<storage>/<experiment>/<run>``."""
KEYS: Final = "CALLSHEET_KEYS"
"""A folder with the run's secret key, readable by the run's owner alone."""
ENCRYPTION: Final = "CALLSHEET_ENCRYPTION"
"""``off`` when the experiment says that its data plane is not encrypted; else unset."""
ENCRYPTION_OFF: Final = "off"
ADDRESSES: Final = "CALLSHEET_ADDRESSES"
"""Path of a JSON file with the whole address book, kept current while elastic roles change."""

ENDPOINT_PORT: Final = "PORT"
"""The endpoint's port."""
ENDPOINT_BIND: Final = "BIND"
"""``host:port`` to listen on; only in the container that binds or exposes the endpoint."""
ENDPOINT_ADDR: Final = "ADDR"
"""``host:port`` to connect to: the group's own copy, else the only replica's, else that of the replica with the same
index (modulo their number)."""
ENDPOINT_HOST: Final = "HOST"
"""The host of that address alone."""
ENDPOINT_ALL: Final = "ALL"
"""One address for each replica that binds it when this replica starts, comma-separated, in index order; unset when that
is longer than 100,000 characters."""

GPUS: Final = "CUDA_VISIBLE_DEVICES"
"""The devices that a replica was given; set when any role of the experiment asks for GPUs."""
GPU_RESOURCE: Final = "nvidia.com/gpu"

REGISTRY: Final = "registry.callsheet.dev"
"""Where our images are sought unless one says where: under our own name, where nobody else can put any."""
IMAGE: Final = "callsheet"
"""Our image, whose tag is our version: every program of ours, without PyTorch."""
LEARNER_IMAGE: Final = "callsheet-learner"
"""The same with PyTorch."""

WORDS: Final = ("experiment", "run", "role", "index", "container", "replicas", "storage")
"""What may stand alone in braces: ``{index}``."""
ENDPOINT_WORDS: Final = ("addr", "host", "port", "bind", "all", "any")
"""What may follow an endpoint's name in braces: ``{trajectories.addr}``."""
FILES: Final = "files"
"""``{files.NAME}`` is the path of an injected file."""
MOUNTS: Final = "mounts"
"""``{mounts.NAME}`` is the path under which this container sees a volume."""
RESERVED_ENDPOINTS: Final = (FILES, MOUNTS)

LONGEST_VALUE: Final = 100_000
"""Bytes. Linux refuses to start a program with one variable or argument of 128 KiB; ``_ALL`` stays below."""

EXIT_OK: Final = 0
"""The run succeeded, or the command did what it was asked."""
EXIT_FAILED: Final = 1
"""Something outside was not there in time."""
EXIT_MISTAKE: Final = 2
"""The file, a flag or a name is wrong; nothing was started."""
EXIT_SUPERVISOR_LOST: Final = 70
"""The supervisor was killed, or Callsheet itself broke a promise."""
EXIT_CONFIG: Final = 78
"""A replica found a problem that no restart can fix, such as an invalid setting: EX_CONFIG of sysexits. Under the
policy `OnFailure` it fails immediately."""
EXIT_DEADLINE: Final = 124
"""The run's deadline passed."""
EXIT_CANNOT_START: Final = 127
"""A replica's program could not be started."""
EXIT_INTERRUPTED: Final = 130
"""Ctrl-C."""
EXIT_STOPPED: Final = 143
"""The run was stopped by `callsheet stop`, by a signal, or because the program that started it went away."""

RENAMED: Final = {
    "duelling": "dueling",
    "normalise": "normalize",
    "normalise_advantages": "normalize_advantages",
    "prioritised": "prioritized",
}
"""Old spellings in experiment files and checkpoints of earlier versions: still read, never written."""


def endpoint_variable(endpoint: str, word: str) -> str:
    """The variable that tells one thing about one endpoint: ``CALLSHEET_TRAJECTORIES_ADDR``."""
    return f"{PREFIX}{endpoint.upper().replace('-', '_')}_{word}"
