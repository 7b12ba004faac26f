"""Inserts numbered items into a replay until it is stopped."""

import itertools

import numpy as np

from callsheet.runtime import Context, ReplayClient

with Context.from_env() as ctx, ReplayClient(ctx, "replay") as replay:
    print("inserting", flush=True)
    for number in itertools.count():
        replay.insert({"number": np.array(number), "row": np.full(50, number, np.float32)})
        ctx.sleep(0.001)
