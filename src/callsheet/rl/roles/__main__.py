"""Runs one role of a training."""

from __future__ import annotations

import argparse
import importlib
import logging
import sys

from callsheet import contract
from callsheet.errors import CallsheetError, Misconfigured
from callsheet.rl.settings import read
from callsheet.runtime import Context

ROLES = {
    "learner": "learns from what actors play, publishes parameters, writes checkpoints",
    "actor": "steps environments with the newest policy",
    "policy": "chooses actions for actors that have no policy of their own",
    "evaluator": "evaluates the newest policy on separate episodes",
    "tensorboard": "serves the run's metrics with TensorBoard",
}


def main() -> int:
    """Run a role; returns 0 only if its work is done. A role that was stopped exits with 143: an evicted learner that ended
    with 0 would end the run (docs/decisions/0061)."""
    parser = argparse.ArgumentParser(prog="python -m callsheet.rl.roles", description=__doc__)
    parser.add_argument("role", choices=ROLES, help="; ".join(f"{k}: {v}" for k, v in ROLES.items()))
    parser.add_argument(
        "file", help="the training's file, as `callsheet train --render` puts it into an experiment"
    )
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    try:
        training = read(arguments.file)
        with Context.from_env() as context:
            importlib.import_module(f"callsheet.rl.roles.{arguments.role}").run(context, training)
            context.done()
    except CallsheetError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return contract.EXIT_CONFIG if isinstance(error, Misconfigured) else error.exit_code
    return contract.EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
