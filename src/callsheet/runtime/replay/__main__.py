"""A replay server as a role of its own: `python -m callsheet.runtime.replay --endpoint replay --kind prioritized`.

The experiment file starts it like any other program; it reads its address and storage from the environment.
"""

from __future__ import annotations

import argparse
import logging
import sys
from typing import get_args

from callsheet import contract
from callsheet.errors import CallsheetError
from callsheet.runtime.context import Context
from callsheet.runtime.replay.config import Kind, Table
from callsheet.runtime.replay.server.server import ReplayServer

_UNITS = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}


def main(arguments: list[str] | None = None) -> int:
    """Serve until SIGTERM; then store a last snapshot and exit with 143: a replay is never done."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    try:
        table = Table(
            name=options.table,
            kind=options.kind,
            items=options.items,
            bytes=options.bytes,
            alpha=options.alpha,
            min_size=options.min_size,
            samples_per_insert=options.samples_per_insert,
            tolerance=options.tolerance,
            seed=options.seed,
        )
        with (
            Context.from_env() as context,
            ReplayServer(
                context,
                options.endpoint,
                table,
                window=options.window,
                snapshot_every=options.snapshot_every or None,
                keep=options.keep,
            ) as server,
        ):
            server.serve()
    except CallsheetError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m callsheet.runtime.replay",
        description="Store items that actors insert and learners sample.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--endpoint", default="replay", help="endpoint to bind")
    add("--table", default="replay", help="name of the table")
    add(
        "--kind",
        default="uniform",
        type=lambda kind: contract.RENAMED.get(kind, kind),
        choices=get_args(Kind),
        help="uniform: all items are equally likely; prioritized: by priority; fifo: a queue, each item once",
    )
    add("--items", type=int, default=1_000_000, help="capacity in items; when full, the oldest are evicted")
    add("--bytes", type=_bytes, help="capacity in bytes, if that is less: 500M, 20Gi")
    add("--alpha", type=float, default=0.6, help="priority exponent, from 0 to 1")
    add("--min-size", type=int, default=1, help="items required before sampling starts")
    add(
        "--samples-per-insert",
        type=float,
        help="average samples per item: the side that is ahead waits; no limit if omitted",
    )
    add(
        "--tolerance",
        type=float,
        help="samples that the two sides may differ; if omitted, 10%% of min-size x samples-per-insert",
    )
    add("--seed", type=int, help="random seed")
    add("--window", type=int, default=8, help="messages in flight per client and direction")
    add(
        "--snapshot-every",
        type=float,
        default=300.0,
        metavar="SECONDS",
        help="seconds between snapshots in the run's storage; also taken on SIGTERM; 0 to disable",
    )
    add("--keep", type=int, default=2, help="number of snapshots to keep")
    return parser


def _bytes(text: str) -> int:
    number = text.rstrip("kKMGTi")
    try:
        return int(float(number) * _UNITS[text[len(number) :]])
    except (ValueError, KeyError):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of bytes; write 500M or 20Gi") from None


if __name__ == "__main__":
    sys.exit(main())
