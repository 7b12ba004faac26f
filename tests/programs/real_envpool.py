"""The real EnvPool through our environments: run with it on the path. Every line that fails says what is not so."""

from __future__ import annotations

import numpy as np

from callsheet.rl.envs import make, spaces_of
from callsheet.rl.spaces import Array, Discrete

look = spaces_of("envpool:CartPole-v1")
assert (look.action, look.family) == (Discrete(2), "classic"), look
assert look.observations == {"observation": Array("float32", (4,))}, look

envs = make("envpool:CartPole-v1", 3, seed=1, options={"max_episode_steps": 4})
begin = envs.reset()["observation"].copy()
assert begin.shape == (3, 4)
seen = [envs.step(np.ones(3, np.int64)) for _ in range(5)]
assert [bool(step.truncated.all()) for step in seen] == [False, False, False, True, False], seen
assert not any(step.terminated.any() for step in seen)
assert seen[4].first.all()
assert not seen[4].valid.any()
assert np.array_equal(envs.reset(1)["observation"], begin), "the same seed, the same beginning"
assert not np.array_equal(envs.reset(2)["observation"], begin)
envs.close()

look = spaces_of("envpool:Pong-v5")
assert look.family == "atari", look
assert look.observations == {"observation": Array("uint8", (4, 84, 84), 0.0, 255.0)}, look
games = make("envpool:Pong-v5", 2, seed=0)
games.reset()
chance = np.random.default_rng(0)
rewards, frames = [], []
for _ in range(300):
    step = games.step(chance.integers(0, 6, 2))
    rewards.append(step.rewards.copy())
    frames.append(step.observations["observation"].mean())
assert np.abs(rewards).sum() > 0, "in 300 steps at random somebody scores"
assert np.std(frames) > 0, "pictures change"
games.close()
print("as all others")
