"""Samples from a replay, changes priorities, and is done after a while."""

import numpy as np

from callsheet.runtime import Context, ReplayClient

with Context.from_env() as ctx, ReplayClient(ctx, "replay", batch=16) as replay:
    for _ in range(50):
        sample = replay.sample(timeout=30)
        assert (sample.arrays["row"] == sample.arrays["number"][:, None]).all()
        replay.update(sample.keys, np.random.default_rng().random(16))
    print("learned", flush=True)
