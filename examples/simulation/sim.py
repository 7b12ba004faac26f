"""A simulator: answers with who it is."""

from __future__ import annotations

import argparse

import web


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bind", default="localhost:9992", metavar="HOST:PORT")
    options = parser.parse_args()
    web.serve(options.bind, lambda: web.identity("sim"))


if __name__ == "__main__":
    main()
