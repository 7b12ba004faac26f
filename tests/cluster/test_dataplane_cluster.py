"""The data plane on a real cluster: across nodes by the network, between containers of one pod by memory."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from cluster_runs import begin, callsheet, cloud, folder, lines, python
from kubectl import Kube

from callsheet.backends.kubernetes.run import KubernetesRun

__all__ = ["begin", "cloud", "folder"]
Begin = Callable[..., KubernetesRun]
EXAMPLES = Path(__file__).parents[2] / "examples"

READER = """
import json
from callsheet.runtime import Context, TrajectoryReader
with Context.from_env() as ctx, TrajectoryReader(ctx, "trajectories") as reader:
    for _ in range(10):
        batch = reader.read(20, timeout=180)
    transports = [peer.transport for peer in reader._listener.peers]
    print(json.dumps({
        "bytes": reader.counts()["bytes"],
        "by_memory": [transport.shared_memory for transport in transports],
        "on_socket": [getattr(transport, "bytes_on_socket", 0) for transport in transports],
        "sum": float(batch["x"].sum()),
    }))
"""
WRITER = """
import os
import numpy as np
from callsheet.runtime import Context, TrajectoryWriter
print("uid", os.getuid(), flush=True)
with Context.from_env() as ctx, TrajectoryWriter(ctx, "trajectories") as writer:
    while True:
        writer.write({"x": np.ones((64, 1024), "f4")})
"""


def test_a_learner_and_actors_of_ones_own_learn_across_nodes(
    namespace: Kube, folder: Path, image: str
) -> None:
    example = str(EXAMPLES / "own" / "experiment.yaml")
    done = callsheet(namespace, "run", "-f", example, "--set", f"image={image}")
    assert done.returncode == 0, done.stderr
    assert re.search(r"done after \d+ updates: 90% right", done.stdout)


def test_containers_of_one_pod_with_different_users_exchange_memory(begin: Begin) -> None:
    run = begin(
        {
            "name": "pair",
            "containers": [
                {"name": "learner", "command": python(READER), "binds": [{"name": "trajectories"}]},
                {
                    "name": "actor",
                    "command": python(WRITER),
                    "connects": ["trajectories"],
                    "securityContext": {"runAsUser": 4321},
                },
            ],
        },
        lifecycle={"success": ["pair"]},
        detach=False,
    )
    status = run.wait(90)
    assert status.phase == "Succeeded", lines(run, "pair")
    assert "uid 4321" in lines(run, "pair", container="actor")
    said = json.loads(lines(run, "pair", container="learner")[-1])
    assert said["by_memory"] == [True]
    assert said["sum"] == 20 * 64 * 1024
    assert said["bytes"] >= 200 * 64 * 1024 * 4
    assert sum(said["on_socket"]) < said["bytes"] / 100
