"""`python -m tools.faults soak|run|page`: see docs/reference/faults.md."""

from __future__ import annotations

import argparse
import json
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
    wish = parser.parse_args()
    return _soak(wish)


def _soak(wish: argparse.Namespace) -> int:
    from tools.faults.soak import soak

    with tempfile.TemporaryDirectory(prefix="callsheet-soak-") as temporary:
        told = soak(wish.folder or Path(temporary), wish.minutes, wish.seed)
    print(json.dumps(told, indent=2))
    return 1 if told["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
