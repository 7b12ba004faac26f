"""Samples from a replay, changes priorities, and is done after a while."""

import numpy as np

from callsheet.runtime import Context, ReplayClient
from callsheet.runtime.replay.client.sampler import EPOCH_BITS, POSITION_BITS

shards = set()
with Context.from_env() as ctx, ReplayClient(ctx, "replay", batch=16) as replay:
    while len(shards) < 2 or replay.counts()["sampled"] < 50 * 16:
        sample = replay.sample(timeout=30)
        assert (sample.arrays["row"] == sample.arrays["number"][:, None]).all()
        shards.update((sample.keys >> np.uint64(EPOCH_BITS + POSITION_BITS)).tolist())
        replay.update(sample.keys, np.random.default_rng().random(16))
    print("learned", flush=True)
