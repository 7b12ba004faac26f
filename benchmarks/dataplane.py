"""The data plane compared with its peers: the same rollouts, weights, replay and requests, measured in turns.

    python benchmarks/dataplane.py [--install] [--rounds 3] [--seconds 3] [--only WORD] [--soak SECONDS]

Each comparison alternates between the peer and ours and compares medians. Peers that are not installed are skipped;
`--install` installs them into separate environments outside the tree (Ray and Reverb take some gigabytes). The bare ring
and the bare shared memory busy-wait on counters: they are an upper limit, not something to use.
"""

from __future__ import annotations

import sys

from comparison import HERE, Goal, Row, arguments, compare_all, run

OURS = "dataplane_ours.py"


def trajectories(
    name: str, payload: str, writers: int, way: str, goals: tuple[Goal, ...], seconds: str
) -> Row:
    """Rollouts from writers to a reader."""
    words = (payload, str(writers), seconds)
    everyone = {
        "ring": ("", "ring.py", *words),
        "hand-over": ("", "handover.py", *words),
        "pyzmq": ("", "bare_zmq.py", *words),
        "CURVE": ("", "bare_zmq.py", *words, "curve"),
        "Ray": ("ray", "ray_actors.py", *words),
        "Reverb": ("reverb", "reverb_table.py", *words, "queue"),
    }
    near = ["ring", "hand-over", "Ray", "Reverb"] if way == "memory" else ["pyzmq", "CURVE", "Ray"]
    wanted = {goal.peer for goal in goals} | set(near)
    peers = {peer: command for peer, command in everyone.items() if peer in wanted}
    return Row(name, (OURS, "trajectories", *words, way), peers, "items_per_s", goals)


def rows(seconds: str) -> list[Row]:
    """The comparisons and their goals."""
    found = [
        trajectories(
            f"same host, 1.05 MB, {n} writer{'s' * (n > 1)}",
            "1.05MB",
            n,
            "memory",
            (Goal("Ray", 20), Goal("Reverb", 20), Goal("ring", 0.7)),
            seconds,
        )
        for n in (1, 2)
    ]
    found += [
        trajectories(
            "same host, 1 KB, 2 writers", "1KB", 2, "memory", (Goal("Ray", 10), Goal("pyzmq", 1)), seconds
        ),
        trajectories(
            "TCP, 565 KB, 2 writers", "565KB", 2, "network", (Goal("Ray", 3), Goal("pyzmq", 0.8)), seconds
        ),
        trajectories(
            "TCP encrypted, 1.05 MB, 1 writer", "1.05MB", 1, "encrypted", (Goal("Ray", 1),), seconds
        ),
        Row(
            "6.76 MB of weights to 2 readers, ms",
            (OURS, "weights", "60"),
            {"shared memory": ("", "weights.py", "60")},
            "ms",
            (Goal("shared memory", 1.8, at_most=True),),
        ),
        Row(
            "publish() p99 with 128 readers, us",
            (OURS, "publish", "128", "300"),
            {"1 reader": ("ours", OURS, "publish", "1", "300")},
            "p99_us",
            (Goal("1 reader", 1.5, at_most=True),),
        ),
    ]
    found += [
        Row(
            f"replay, prioritized, {payload}, inserts and samples",
            (OURS, "replay", payload, "1", seconds),
            {"Reverb": ("reverb", "reverb_table.py", payload, "1", seconds, "prioritized")},
            "both_per_s",
            (Goal("Reverb", 5),),
        )
        for payload in ("565KB", "1KB")
    ]
    found.append(
        Row(
            "policy server, 64 clients, requests/s",
            (OURS, "policy", "64", seconds),
            {
                "gRPC": ("grpc", "grpc_policy.py", "64", seconds),
                "Ray": ("ray", "ray_policy.py", "64", seconds),
            },
            "requests_per_s",
            (),
        )
    )
    return found


def soak(seconds: float) -> None:
    """Trajectories for long, with the reader's memory at the begin and at the end."""
    ours = [sys.executable, str(HERE / OURS), "trajectories", "565KB", "2"]
    short = run([*ours, "5", "memory"])
    long = run([*ours, str(seconds), "memory"], timeout=seconds + 300)
    growth = long["peak_mb"] - short["peak_mb"]
    print(
        f"\nsoak of {seconds:.0f} s: {long['items_per_s']:,.0f} items/s, the reader's peak grew by {growth:.1f} MB"
    )


def main() -> None:
    """Run all comparisons."""
    parser = arguments(__doc__)
    parser.add_argument("--seconds", default="3", help="of each measurement")
    parser.add_argument(
        "--soak", type=float, default=0.0, help="also run for so many seconds and watch the memory"
    )
    wanted = parser.parse_args()
    compare_all(rows(wanted.seconds), wanted)
    if wanted.soak:
        soak(wanted.soak)


if __name__ == "__main__":
    main()
