"""Our side of `learning.py`.

learning_ours.py cartpole SEED    PPO to a mean return of 475, one learner, two actors, as processes
learning_ours.py pong-sampling [ENV]   random actions, delivered to a reader (ALE/Pong-v5, or envpool:Pong-v5)
learning_ours.py pong             PPO on Pong
learning_ours.py halfcheetah SEED [STEPS]   SAC on HalfCheetah, one actor
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "peers"))

from payloads import report


def train(*words: str) -> tuple[dict[str, Any], list[dict[str, Any]], float]:
    """Run `callsheet train` in a folder of its own: its result, its learning curve, and how long it took."""
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        command = [sys.executable, "-m", "callsheet", "train", *words]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        took = time.perf_counter() - begun
        if done.returncode:
            raise RuntimeError(done.stdout + done.stderr)
        result = next(Path(folder).glob("runs/*/*/result.json"))
        curve = (result.parent / "metrics" / "curve.jsonl").read_text().splitlines()
        return json.loads(result.read_text()), [json.loads(line) for line in curve], took


def cartpole(seed: str) -> None:
    """As a user would."""
    found, _, whole = train(
        "ppo", "--env", "CartPole-v1", "--actors", "2", "--seed", seed, "--stop-sampled", "475"
    )
    seconds = found["seconds"]
    report(
        "Callsheet",
        train_s=seconds,
        whole_s=whole,
        steps=found["steps"],
        steps_per_s=found["steps"] / seconds,
    )


def pong() -> None:
    """The steady state, from the learning curve: the first updates warm caches."""
    _, curve, _ = train(
        *("ppo", "--env", "ALE/Pong-v5", "--actors", "1", "--stop-steps", "12000", "--evaluate-every", "0"),
        *("--set", "environments=8", "--set", "rollout=128", "--set", "epochs=4", "--set", "minibatch=256"),
        *("--learner-cpus", "2", "--actor-cpus", "1"),
    )
    points = [point for point in curve if "updates" in point]
    first, last = points[0], points[-1]
    steps, seconds = last["steps"] - first["steps"], last["elapsed"] - first["elapsed"]
    report("Callsheet", steps_per_s=steps / seconds, steps=last["steps"])


def halfcheetah(seed: str, steps: str = "100000") -> None:
    """With the defaults of `callsheet train sac` and, as its peer, two threads; the speed is that of learning, after the
    random steps."""
    found, curve, _ = train(
        *("sac", "--env", "HalfCheetah-v5", "--actors", "1", "--seed", seed),
        *("--stop-steps", steps, "--evaluate-every", "0", "--learner-cpus", "2"),
    )
    points = [point for point in curve if point["steps"] >= 2000]
    first, last = points[0], points[-1]
    speed = (last["steps"] - first["steps"]) / (last["elapsed"] - first["elapsed"])
    report("Callsheet", sampled=found["return"], steps_per_s=speed, steps=found["steps"])


def pong_sampling(env: str = "ALE/Pong-v5") -> None:
    """Random actions in the environments of two actors, a core each, written to a reader in this process."""
    import numpy as np

    from callsheet.runtime import Context, TrajectoryReader

    with (
        Context(addresses={"t": "127.0.0.1:0"}, plaintext=True, role="learner") as here,
        TrajectoryReader(here, "t", axis=1) as reader,
    ):
        command = [sys.executable, __file__, "play", reader.address, env]
        actors = [
            subprocess.Popen([*command, str(n)], env=os.environ | {"OMP_NUM_THREADS": "1"}) for n in range(2)
        ]
        try:
            reader.read(4)
            begun, steps = time.perf_counter(), 0
            while time.perf_counter() - begun < 6:
                batch = reader.read(1)
                steps += int(np.prod(batch["reward"].shape))
            took = time.perf_counter() - begun
        finally:
            for actor in actors:
                actor.kill()
    report("Callsheet", steps_per_s=steps / took)
    os._exit(0)


def play(address: str, env: str, index: str) -> None:
    """Four games at once, sixteen steps a rollout."""
    import numpy as np

    from callsheet.rl.envs import make
    from callsheet.runtime import Context, Schema, TrajectoryWriter

    games = make(env, 4, seed=int(index))
    games.reset()
    chance = np.random.default_rng(int(index))
    with Context(addresses={"t": address}, plaintext=True, role="actor", index=int(index)) as here:
        shape = games.spaces.observations["observation"].shape
        sample = {"obs": np.zeros((16, 4, *shape), np.uint8), "reward": np.zeros((16, 4), np.float32)}
        with TrajectoryWriter(here, "t", Schema.of(sample), ahead=4) as writer:
            while True:
                with writer.rollout() as arrays:
                    for t in range(16):
                        step = games.step(chance.integers(0, 6, 4))
                        arrays["obs"][t] = step.observations["observation"]
                        arrays["reward"][t] = step.rewards


if __name__ == "__main__":
    parts = {"cartpole": cartpole, "pong": pong, "halfcheetah": halfcheetah}
    (parts | {"pong-sampling": pong_sampling, "play": play})[sys.argv[1]](*sys.argv[2:])
