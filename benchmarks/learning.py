"""Learning compared with other libraries: the same environments, measured in turns.

    python benchmarks/learning.py [--install] [--rounds 3] [--only WORD]

Both run in turns, each round with another seed, and medians are compared. For all, training is done when the last 20
episodes, played while exploring, reach the mean return. Peers that are not installed are skipped; `--install` installs them
into separate environments outside the tree.
"""

from __future__ import annotations

from comparison import Goal, Row, arguments, compare_all

OURS = "learning_ours.py"
SEED = "{round}"


def rows() -> list[Row]:
    """The comparisons and their goals."""
    ours = (OURS, "cartpole", SEED)
    sb3 = ("sb3", "sb3_cartpole.py", SEED)
    cheetah = (OURS, "halfcheetah", SEED)
    sb3_cheetah = ("sb3", "sb3_halfcheetah.py", SEED)
    rllib = ("rllib", "rllib_cartpole.py", SEED)
    return [
        Row(
            "CartPole-v1 to 475, seconds of training",
            ours,
            {"SB3": sb3, "RLlib": rllib},
            "train_s",
            (Goal("SB3", 1 / 3, at_most=True),),
        ),
        Row(
            "CartPole-v1 to 475, seconds of the whole command",
            ours,
            {"SB3": sb3, "RLlib": rllib},
            "whole_s",
            (Goal("RLlib", 1 / 3, at_most=True),),
        ),
        Row(
            "CartPole-v1, steps/s while learning",
            ours,
            {"SB3": sb3, "Sample Factory": ("sample-factory", "sample_factory_cartpole.py", SEED)},
            "steps_per_s",
            (Goal("Sample Factory", 1),),
            minimum=20_000,
        ),
        Row(
            "Pong, random actions delivered to a reader, steps/s",
            (OURS, "pong-sampling"),
            {
                "EnvPool": ("envpool", "pong_sampling.py", "envpool"),
                "ale-py": ("", "pong_sampling.py", "ale"),
            },
            "steps_per_s",
            (Goal("EnvPool", 0.9), Goal("ale-py", 0.9)),
        ),
        Row(
            "Pong, learning with PPO, steps/s",
            (OURS, "pong"),
            {
                "SB3": ("sb3", "sb3_pong.py"),
                "Sample Factory": ("sample-factory", "sample_factory_pong.py"),
            },
            "steps_per_s",
            (Goal("SB3", 1), Goal("Sample Factory", 1)),
        ),
        Row(
            "HalfCheetah, SAC, steps/s while learning",
            cheetah,
            {"SB3": sb3_cheetah},
            "steps_per_s",
            (Goal("SB3", 1.5),),
        ),
        Row(
            "HalfCheetah, SAC, return after 100k steps",
            cheetah,
            {"SB3": sb3_cheetah},
            "sampled",
            (Goal("SB3", 1),),
        ),
    ]


if __name__ == "__main__":
    compare_all(rows(), arguments(__doc__).parse_args())
