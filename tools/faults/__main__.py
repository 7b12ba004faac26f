"""`python -m tools.faults soak|run|page`: see docs/reference/faults.md."""

from __future__ import annotations

import argparse
import datetime
import json
import signal
import sys
import tempfile
from pathlib import Path


def main() -> int:
    """0 when every promise was kept."""
    parser = argparse.ArgumentParser(prog="python -m tools.faults", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    soak = verbs.add_parser(
        "soak", help="a data plane under random faults; ends with 0 when nothing is wrong"
    )
    soak.add_argument("--minutes", type=float, default=60.0)
    soak.add_argument("--seed", type=int, default=1)
    soak.add_argument(
        "--folder", type=Path, help="keep everything here; without it a temporary folder is used"
    )
    soak.add_argument("--result", type=Path, help="write what was seen here too, dated, for the page")
    run = verbs.add_parser("run", help="measure the cells of the matrix and keep the results")
    run.add_argument(
        "--seed", type=int, default=1, help="the order of the cells, and all that happens by chance"
    )
    run.add_argument(
        "--only", default="*", metavar="FAULT/VICTIM", help="a pattern such as 'kill/*' or '*/learner'"
    )
    run.add_argument("--minutes", type=float, default=60.0, help="begin no cell after so many")
    verbs.add_parser("page", help="write docs/reference/faults.md from the results")
    wish = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing is left behind
    return {"soak": _soak, "run": _run, "page": _page}[wish.verb](wish)


def _run(wish: argparse.Namespace) -> int:
    from tools.faults.run import run

    return 1 if run(wish.seed, wish.only, wish.minutes) else 0


def _page(wish: argparse.Namespace) -> int:
    from tools.faults.page import write

    print(write())
    return 0


def _soak(wish: argparse.Namespace) -> int:
    from tools.faults.soak import soak

    with tempfile.TemporaryDirectory(prefix="callsheet-soak-") as temporary:
        told = soak(wish.folder or Path(temporary), wish.minutes, wish.seed)
    told["date"] = datetime.date.today().isoformat()
    text = json.dumps(told, indent=2)
    if wish.result:
        wish.result.write_text(text + "\n")
    print(text)
    return 1 if told["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
