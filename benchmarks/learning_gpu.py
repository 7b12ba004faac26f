"""IMPALA on Pong with a GPU: frames per second while learning, compared with the same actors without a learner.

    python benchmarks/learning_gpu.py [--actors 14] [--seconds 60]

Both parts run the actors of `callsheet train` with the same policy on their CPUs. Without learning, rollouts are read and
dropped. A step is four frames, because games repeat each action four times.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

FRAMES = 4
WARMUP = 15.0
"""Seconds that are not measured, while libraries load and games start."""


def settings() -> list[str]:
    """Larger batches than the defaults, for a GPU."""
    wanted = {"environments": 32, "rollout": 20, "batch": 4, "ahead": 2}
    return [word for name, value in wanted.items() for word in ("--set", f"{name}={value}")]


def rendered(actors: int) -> str:
    """The training's own file."""
    import yaml

    command = [sys.executable, "-m", "callsheet", "train", "impala", "--env", "ALE/Pong-v5"]
    command += ["--actors", str(actors), "--render", *settings()]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return str(yaml.safe_load(done.stdout)["spec"]["files"]["train.json"])


def sampling(actors: int, seconds: float) -> float:
    """Steps per second of actors whose rollouts are dropped."""
    from callsheet.rl.acting.rollouts import axes, schema
    from callsheet.rl.algorithms import algorithm
    from callsheet.rl.envs import spaces_of
    from callsheet.rl.settings import read
    from callsheet.runtime import Context, ParameterServer, TrajectoryReader

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "train.json")
        file.write_text(rendered(actors))
        training = read(file)
        spaces = spaces_of(training.env)
        config = algorithm("impala").settings(training)
        learner = algorithm("impala").make_learner(spaces, training, "cpu")
        shape = schema(spaces, config.rollout, config.environments)
        addresses = {"parameters": "127.0.0.1:0", "trajectories": "127.0.0.1:0"}
        with (
            Context(addresses=addresses, plaintext=True, role="learner") as here,
            ParameterServer(here, "parameters") as parameters,
            TrajectoryReader(here, "trajectories", shape, axis=axes(list(shape.names))) as reader,
        ):
            parameters.publish(1, learner.snapshot())
            places = json.dumps({"parameters": parameters.address, "trajectories": reader.address})
            environment = os.environ | {"OMP_NUM_THREADS": "1"}
            children = [
                subprocess.Popen(
                    [sys.executable, __file__, "--play", str(file), "--places", places, "--index", str(n)],
                    env=environment,
                )
                for n in range(actors)
            ]
            try:
                end = time.monotonic() + WARMUP
                while time.monotonic() < end:
                    reader.read(1)
                begun, steps = time.monotonic(), 0
                while time.monotonic() - begun < seconds:
                    steps += int(reader.read(1)["valid"].sum())
                return steps / (time.monotonic() - begun)
            finally:
                for child in children:
                    child.kill()


def play(file: str, places: str, index: int) -> None:
    """One actor."""
    from callsheet.rl.roles.actor import run
    from callsheet.rl.settings import read
    from callsheet.runtime import Context

    with Context(addresses=json.loads(places), plaintext=True, role="actor", index=index) as context:
        run(context, read(file))


def learning(actors: int, seconds: float) -> tuple[float, float, dict[str, float]]:
    """Steps per second of a training, how busy the GPU was, and the last point of the curve."""
    busy: list[float] = []
    over = threading.Event()

    def watch() -> None:
        query = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
        while not over.wait(0.5):
            busy.append(float(subprocess.run(query, capture_output=True, text=True, check=True).stdout))

    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "callsheet", "train", "impala", "--env", "ALE/Pong-v5"]
        command += ["--actors", str(actors), "--stop-seconds", str(WARMUP + seconds), "--evaluate-every", "0"]
        command += ["--learner-cpus", "1", *settings()]
        watching = threading.Thread(target=watch)
        watching.start()
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        over.set()
        watching.join()
        if done.returncode:
            raise RuntimeError(done.stdout[-3000:] + done.stderr[-3000:])
        curve = next(Path(folder).glob("runs/*/*/metrics/curve.jsonl")).read_text().splitlines()
    points = [point for point in map(json.loads, curve) if "updates" in point and point["elapsed"] > WARMUP]
    first, last = points[0], points[-1]
    speed = (last["steps"] - first["steps"]) / (last["elapsed"] - first["elapsed"])
    return speed, statistics.mean(busy[int(2 * WARMUP) :]), last


def main() -> None:
    """Both, and their ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--actors", type=int, default=14)
    parser.add_argument("--seconds", type=float, default=60)
    for hidden in ("--play", "--places", "--index"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.play:
        play(wanted.play, wanted.places, int(wanted.index))
        return
    alone = sampling(wanted.actors, wanted.seconds)
    print(f"sampling alone   {alone:9,.0f} steps/s {alone * FRAMES:9,.0f} frames/s", flush=True)
    speed, busy, last = learning(wanted.actors, wanted.seconds)
    print(f"while learning   {speed:9,.0f} steps/s {speed * FRAMES:9,.0f} frames/s   GPU busy {busy:.0f}%")
    told = f"lag {last['lag']:.1f}, hunger {last['hunger']:.0%}, return {last.get('return')}"
    print(f"ratio {speed / alone:.2f} (goal >= 0.60); {last['updates']} updates, {told}")


if __name__ == "__main__":
    main()
