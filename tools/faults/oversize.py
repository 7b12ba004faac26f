"""Whoever creates something too large gets an error before anything is sent."""

from __future__ import annotations

import numpy as np

from callsheet.errors import UserError
from callsheet.runtime import Context, ParameterReader, ParameterServer
from callsheet.runtime.keys import Keys
from tools.faults.matrix import Cell
from tools.faults.measures import Setting, other_schema
from tools.faults.scenes import Measured


def parameters(setting: Setting) -> Measured:
    """Two gigabytes of parameters; readers keep what they have, and get the next version."""
    keys = Keys(b"k" * 32)
    with (
        Context(addresses={"p": "127.0.0.1:0"}, keys=keys, memory=False) as there,
        ParameterServer(there, "p") as server,
        Context(addresses={"p": server.address}, keys=keys, memory=False, role="actor") as here,
        ParameterReader(here, "p") as reader,
    ):
        server.publish(1, {"w": np.zeros(3)})
        assert reader.wait(timeout=30).version == 1
        try:
            server.publish(2, {"w": np.broadcast_to(np.zeros(1), (1 << 28,))})
        except UserError as error:
            said = error.message
        else:
            raise AssertionError("two gigabytes were published")
        assert "are larger than" in said, said
        server.publish(3, {"w": np.ones(3)})
        assert reader.wait(timeout=30).version == 3
    return {"said": said}


_TOLD = "tests/integration/test_error_messages.py::"
CELLS = {
    "actor": Cell(
        "The actor exits with an error that says how large an item may be. Nothing durable is lost, and the other actor is "
        "not affected. Recovers within 60 s with smaller items.",
        other_schema(60, "may be kept", width=200_000),
    ),
    "learner": Cell(
        "A batch that is too large is refused, whenever it is requested, and the error says what fits.",
        tests=(
            f"{_TOLD}test_a_batch_that_is_too_large_is_refused_also_when_it_was_asked_for_before_the_first_item",
        ),
    ),
    "replay shard": Cell(
        "A table that does not fit into memory refuses its first writer, and a queue refuses a batch that it cannot hold. "
        "Both keep running.",
        tests=(
            f"{_TOLD}test_more_items_than_a_queue_holds_are_refused_when_that_is_known",
            "tests/integration/test_replay.py::"
            "test_a_table_that_needs_more_memory_than_there_is_refuses_its_first_writer_and_lives_on",
        ),
    ),
    "parameter server": Cell(
        "The error says what fits. Readers keep the version they have, and get the next one.", parameters
    ),
    "policy server": Cell(
        "A request larger than a batch raises an error in the client before it is sent.",
        tests=(
            "tests/integration/test_policy.py::test_mistakes_in_a_request_are_told_before_it_is_sent",
            f"{_TOLD}test_a_policy_that_came_back_with_smaller_batches_says_so",
        ),
    ),
    "evaluator": Cell(why_not="An evaluation is two numbers."),
}
