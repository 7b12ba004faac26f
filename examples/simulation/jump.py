"""Asks every process of the experiment who it is, at its stable address.

With `callsheet exec`, the address file is in the environment; by hand, name the file or the
addresses: ``python jump.py localhost:9991 localhost:9992``.
"""

from __future__ import annotations

import argparse
import sys

import web


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address", nargs="*", metavar="HOST:PORT", help="ask only these")
    parser.add_argument("--addresses", metavar="FILE", help="the run's address file")
    options = parser.parse_args()
    by_endpoint = {"": options.address} if options.address else web.addresses(options.addresses)
    if not by_endpoint:
        sys.exit("no addresses: pass some, or a run's address file with --addresses FILE")

    silent = 0
    for endpoint, addresses in sorted(by_endpoint.items()):
        for index, address in enumerate(addresses):
            name = f"{endpoint}/{index}" if endpoint else "-"
            try:
                print(f"{name:10} {address:22} {web.ask(address)}")
            except web.Unreachable as error:
                silent += 1
                print(f"{name:10} {address:22} {error}")
    sys.exit(1 if silent else 0)


if __name__ == "__main__":
    main()
