"""An actor in plain NumPy: it takes the newest policy, acts, and writes what happened."""

import numpy as np

from callsheet.runtime import Context, ParameterReader, TrajectoryWriter

STEPS = 64
SECRET = np.random.default_rng(1).normal(size=(4, 3))


def roll_out(weights, chance):
    """Observations, actions and rewards of so many steps."""
    observations = chance.normal(size=(STEPS, 4)).astype("f4")
    noise = chance.gumbel(size=(STEPS, 3))  # the largest score after this noise is a sample of the policy
    actions = (observations @ weights + noise).argmax(axis=1)
    rewards = (actions == (observations @ SECRET).argmax(axis=1)).astype("f4")
    return {"observation": observations, "action": actions, "reward": rewards}


def main():
    with (
        Context.from_env() as ctx,
        ParameterReader(ctx, "parameters") as parameters,
        TrajectoryWriter(ctx, "trajectories") as writer,
    ):
        chance = np.random.default_rng(ctx.index)
        policy = parameters.wait()
        while not ctx.stopping:
            policy = parameters.poll() or policy
            writer.write(roll_out(policy.arrays["weights"], chance), version=policy.version)


if __name__ == "__main__":
    main()
