"""A policy: answers with who it is, and with what its own simulator says."""

from __future__ import annotations

import argparse

import web


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bind", default="localhost:9991", metavar="HOST:PORT")
    parser.add_argument("--sim", default="localhost:9992", metavar="HOST:PORT", help="its simulator")
    options = parser.parse_args()
    web.serve(options.bind, lambda: f"{web.identity('policy')} simulator=[{web.ask(options.sim)}]")


if __name__ == "__main__":
    main()
