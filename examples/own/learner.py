"""A learner in plain NumPy: it reads batches of rollouts, follows the policy gradient, and publishes its parameters.

One of three actions is right, depending on the observation. A random policy is right a third of the time; training
stops at 90 %.
"""

import numpy as np

from callsheet.runtime import Context, ParameterServer, TrajectoryReader

ROLLOUTS, RATE, GOAL = 16, 2.0, 0.9


def gradient(weights, batch):
    """The policy gradient: how to change each weight so that rewarded actions become more likely."""
    observations, actions, rewards = batch["observation"], batch["action"], batch["reward"]
    scores = observations @ weights
    probabilities = np.exp(scores - scores.max(axis=-1, keepdims=True))
    probabilities /= probabilities.sum(axis=-1, keepdims=True)
    chosen = np.eye(weights.shape[1], dtype="f4")[actions]
    advantage = (rewards - rewards.mean())[..., None] * (chosen - probabilities)
    return np.einsum("ntd,nta->da", observations, advantage) / rewards.size


def main():
    weights, version, right = np.zeros((4, 3), "f4"), 0, 0.0
    with (
        Context.from_env() as ctx,
        ParameterServer(ctx, "parameters") as parameters,
        TrajectoryReader(ctx, "trajectories", max_policy_lag=20) as reader,
    ):
        parameters.publish(version, {"weights": weights})
        while right < GOAL:
            batch = reader.read(ROLLOUTS)
            weights += RATE * gradient(weights, batch)
            version += 1
            parameters.publish(version, {"weights": weights})
            reader.version = version
            right += (float(batch["reward"].mean()) - right) / 10
            if version % 25 == 0:
                print(f"version {version}: {right:.0%} right", flush=True)
        print(f"done after {version} updates: {right:.0%} right", flush=True)


if __name__ == "__main__":
    main()
