"""`python -m tools.fuzz`: runs targets for a number of cases or minutes, and says what it found."""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import time

from tools.fuzz.inputs import parsers
from tools.fuzz.kept import Corpus
from tools.fuzz.live import attack
from tools.fuzz.parsers import Parser
from tools.fuzz.ports import control_socket, metrics_port
from tools.fuzz.result import Result
from tools.fuzz.services import SERVERS

PORTS = {"metrics port": metrics_port, "control socket": control_socket}


def main() -> int:
    """The number of targets that failed."""
    faulthandler.enable()
    known = {parser.name: parser for parser in parsers()}
    names = [*known, *SERVERS, *PORTS]
    options = argparse.ArgumentParser(prog="python -m tools.fuzz", description=__doc__)
    options.add_argument("--seed", type=int, default=int(time.time()), help="equal seeds make equal cases")
    options.add_argument("--cases", type=int, default=10_000, help="for each target")
    options.add_argument("--minutes", type=float, default=10.0, help="for each target, at most")
    options.add_argument("--target", action="append", choices=names, help="all, if none is named")
    chosen = options.parse_args()
    failed = 0
    print(f"seed {chosen.seed}")
    print("| target | cases | time | memory | longest wait of an honest client | slowest case | failures |")
    print("|---|---|---|---|---|---|---|")
    for name in chosen.target or names:
        result = _run(name, known, chosen.seed, chosen.cases, 60 * chosen.minutes)
        print(result.row(), flush=True)
        for failure in result.failures[:20]:
            print(f"  FAILED {failure}", flush=True)
        failed += bool(result.failures)
    return failed


def _run(name: str, known: dict[str, Parser], seed: int, cases: int, seconds: float) -> Result:
    if name in SERVERS:
        return attack(name, seed, cases, seconds)
    if name in PORTS:
        return PORTS[name](seed, cases, seconds)
    return known[name].run(seed, cases, seconds, Corpus(name.replace(" ", "-")))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        raise SystemExit(main())
