"""The DIJob of the examples, converted and run on a real Kubernetes: the same programs, the same variables."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from kubectl import Kube

EXAMPLE = Path(__file__).parents[2] / "examples" / "dijob"
ROLES = ("learner", "collector", "evaluator")


def callsheet(*words: str, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "callsheet", *words],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_converted_job_learns_on_two_nodes(namespace: Kube, image: str, tmp_path: Path) -> None:
    file = tmp_path / "experiment.yaml"
    converted = callsheet("convert", str(EXAMPLE / "job.yaml"), "--workdir", str(EXAMPLE))
    file.write_text(converted.partition("warning:")[0])
    images = [word for role in ROLES for word in ("--set", f"roles.{role}.image={image}")]

    words = ("--on", "kubernetes", "-n", namespace.namespace, "-f", str(file), *images)
    said = callsheet("run", *words, KUBECONFIG=str(namespace.kubeconfig))

    assert "corridor Succeeded" in said
    assert "learner 0 of 4 listens" in said
    for rank in (1, 2):
        assert f"collector {rank} of 4, one of 2 collectors" in said
    collected = [int(count) for count in re.findall(r"collected (\d+) episodes", said)]
    learned = [int(count) for count in re.findall(r"(\d+) from rank \d", said)]
    assert sorted(count for count in collected if count) == sorted(learned)
