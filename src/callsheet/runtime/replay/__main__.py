"""A replay server as a role of its own: `python -m callsheet.runtime.replay --endpoint replay --kind prioritized`.

The experiment's file starts it like any program; its environment says where it listens and where its storage is.
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
    wish = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    try:
        table = Table(
            name=wish.table,
            kind=wish.kind,
            items=wish.items,
            bytes=wish.bytes,
            alpha=wish.alpha,
            min_size=wish.min_size,
            samples_per_insert=wish.samples_per_insert,
            tolerance=wish.tolerance,
            seed=wish.seed,
        )
        with (
            Context.from_env() as context,
            ReplayServer(
                context,
                wish.endpoint,
                table,
                window=wish.window,
                snapshot_every=wish.snapshot_every or None,
                keep=wish.keep,
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
        description="Holds items that actors insert and learners sample, as a role of an experiment.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--endpoint", default="replay", help="the endpoint that this role binds")
    add("--table", default="replay", help="the table's name, as clients call it")
    add(
        "--kind",
        default="uniform",
        type=lambda kind: contract.RENAMED.get(kind, kind),
        choices=get_args(Kind),
        help="uniform: every item has the same chance; prioritized: by priority; fifo: a queue, each item once",
    )
    add("--items", type=int, default=1_000_000, help="items that it holds; then the oldest make room")
    add("--bytes", type=_bytes, help="bytes of items that it holds, if that is fewer: 500M, 20Gi")
    add("--alpha", type=float, default=0.6, help="how much priorities count, from 0 to 1")
    add("--min-size", type=int, default=1, help="items from which on samples are taken")
    add(
        "--samples-per-insert",
        type=float,
        help="how often each item is sampled on average: whoever is ahead waits; without it nobody does",
    )
    add(
        "--tolerance",
        type=float,
        help="samples by which the two sides may be apart; without it a tenth of min-size x samples-per-insert",
    )
    add("--seed", type=int, help="for draws that can be repeated")
    add("--window", type=int, default=8, help="messages that may be under way to and from each client")
    add(
        "--snapshot-every",
        type=float,
        default=300.0,
        metavar="SECONDS",
        help="how often the table is stored below the run's storage, and on SIGTERM; 0 for never",
    )
    add("--keep", type=int, default=2, help="snapshots that are kept")
    return parser


def _bytes(text: str) -> int:
    number = text.rstrip("kKMGTi")
    try:
        return int(float(number) * _UNITS[text[len(number) :]])
    except (ValueError, KeyError):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of bytes; write 500M or 20Gi") from None


if __name__ == "__main__":
    sys.exit(main())
