"""An actor in plain NumPy: it fetches the latest policy, acts, and writes what happened."""

import numpy as np

from callsheet.runtime import Context, ParameterReader, TrajectoryWriter

STEPS = 64
SECRET = np.random.default_rng(1).normal(size=(4, 3))


def roll_out(weights, rng):
    """Observations, actions and rewards of 64 steps."""
    observations = rng.normal(size=(STEPS, 4)).astype("f4")
    noise = rng.gumbel(size=(STEPS, 3))  # the argmax of scores plus this noise samples the policy
    actions = (observations @ weights + noise).argmax(axis=1)
    rewards = (actions == (observations @ SECRET).argmax(axis=1)).astype("f4")
    return {"observation": observations, "action": actions, "reward": rewards}


def main():
    with (
        Context.from_env() as ctx,
        ParameterReader(ctx, "parameters") as parameters,
        TrajectoryWriter(ctx, "trajectories") as writer,
    ):
        rng = np.random.default_rng(ctx.index)
        policy = parameters.wait()
        while not ctx.stopping:
            policy = parameters.poll() or policy
            writer.write(roll_out(policy.arrays["weights"], rng), version=policy.version)


if __name__ == "__main__":
    main()
