"""What is too large is refused in a sentence by whoever makes it, before anything is sent."""

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


CELLS = {
    "actor": Cell(
        "It ends with a sentence that says how large an item may be. Nothing durable is lost; the other actor notices "
        "nothing. With smaller items it is back within 60 s.",
        other_schema(60, "may be kept", width=200_000),
    ),
    "learner": Cell(
        "A batch that can never be filled is a mistake that it is told of.",
        tests=("tests/integration/test_replay.py::test_a_batch_larger_than_the_queue_is_a_mistake",),
    ),
    "replay shard": Cell(
        "A table that does not fit into memory refuses its first writer in a sentence, and lives on.",
        tests=(
            "tests/integration/test_replay.py::"
            "test_a_table_that_needs_more_memory_than_there_is_refuses_its_first_writer_and_lives_on",
        ),
    ),
    "parameter server": Cell(
        "It is told what fits; readers keep the version that they have and get the next one.", parameters
    ),
    "policy server": Cell(
        "A request that is larger than a batch is a mistake that its client is told of before it is sent.",
        tests=("tests/integration/test_policy.py::test_mistakes_in_a_request_are_told_before_it_is_sent",),
    ),
    "evaluator": Cell(why_not="A verdict is two numbers."),
}
