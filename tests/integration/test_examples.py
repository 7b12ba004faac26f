"""The examples, run as their pages say: by hand in several terminals, and by Callsheet."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import pytest
import zmq
from free_ports import free_address, free_ports
from local_runs import eventually, kill, lines, replica, until

from callsheet.backends.base import backend
from callsheet.backends.local.client import LocalRun

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PATIENCE = 120.0


@dataclass
class Typed:
    """A program that was started by hand."""

    process: subprocess.Popen[bytes]
    output: Path

    @property
    def printed(self) -> str:
        return self.output.read_text()

    def until_printed(self, text: str) -> None:
        eventually(lambda: text in self.printed or self.process.poll() is not None, within=PATIENCE)
        assert text in self.printed, self.printed

    def ends(self, within: float = PATIENCE) -> int:
        return self.process.wait(within)


class Terminals:
    """Programs started by hand, each in a terminal of its own; whatever still runs is ended with the test."""

    def __init__(self, example: str, env: Mapping[str, str], stack: ExitStack, folder: Path) -> None:
        self.example, self.env, self.stack, self.folder = example, dict(env), stack, folder
        self.count = 0

    def type(self, *words: str, **more: str) -> Typed:
        """Start ``python WORDS...`` in the example's folder."""
        self.count += 1
        output = self.folder / f"terminal-{self.count}.txt"
        with output.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-W", "error", *words],
                cwd=EXAMPLES / self.example,
                env=self.env | more,
                stdout=file,
                stderr=file,
            )
        self.stack.enter_context(process)
        self.stack.callback(process.kill)
        return Typed(process, output)


@pytest.fixture
def env() -> dict[str, str]:
    """The environment of somebody who has installed Callsheet."""
    return os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


@pytest.fixture
def hands(request: pytest.FixtureRequest, env: dict[str, str], folder: Path) -> Iterator[Terminals]:
    """Terminals in the folder of the example that the test names."""
    with ExitStack() as stack:
        yield Terminals(request.param, env, stack, folder)


@pytest.fixture
def free_port() -> str:
    return str(free_ports(1)[0])


@pytest.fixture
def callsheet(env: dict[str, str]) -> Iterator[Callsheet]:
    yield Callsheet(env)
    subprocess.run(
        [sys.executable, "-m", "callsheet", "stop", "--all", "--now"], env=env, capture_output=True
    )


class Callsheet:
    """The command line."""

    def __init__(self, env: dict[str, str]) -> None:
        self.env = env

    def __call__(self, *words: str) -> str:
        """What a command prints; it must succeed."""
        command = [sys.executable, "-m", "callsheet", *words]
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, f"{words} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done.stdout


def found(name: str) -> LocalRun:
    run = backend("local").find(name)
    assert isinstance(run, LocalRun)
    return run


tzmq = pytest.mark.parametrize("hands", ["tzmq"], indirect=True)
simulation = pytest.mark.parametrize("hands", ["simulation"], indirect=True)
symphony = pytest.mark.parametrize("hands", ["symphony"], indirect=True)


@pytest.mark.exclusive
def test_tzmq_runs_to_its_end_and_is_not_slow(callsheet: Callsheet) -> None:
    output = callsheet("run", "-f", str(EXAMPLES / "tzmq" / "experiment.yaml"))

    collected = re.findall(r"collected 10000/10000 trajectories from (\d) actors, (\d+)/s", output)
    assert [count for count, _ in collected] == ["3"]
    assert int(collected[0][1]) > 500
    assert all(f"actor/{index}" in output for index in range(3))


def test_tzmq_survives_a_killed_learner(callsheet: Callsheet) -> None:
    more = ["--set", "roles.learner.args=[--steps, '25000']"]
    callsheet("run", "-d", "-f", str(EXAMPLES / "tzmq" / "experiment.yaml"), *more)
    run = found("tzmq")
    eventually(lambda: any("collected" in line for line in lines(run, "learner/0")), 60)

    kill(run.status(), "learner/0")
    status = run.wait(PATIENCE)

    assert status.phase == "Succeeded"
    assert replica(status, "learner/0").attempt == 1
    assert [replica(status, f"actor/{index}").attempt for index in range(3)] == [0, 0, 0]


@tzmq
def test_tzmq_runs_by_hand(hands: Terminals, free_port: str) -> None:
    learner = hands.type("learner.py", "--port", free_port)
    address = f"localhost:{free_port}"
    actors = [
        hands.type("actor.py", "--lrn_addr", address, "--task_index", index) for index in ("0", "1", "55")
    ]

    assert [process.ends() for process in (learner, *actors)] == [0, 0, 0, 0]
    assert "collected 3000/3000" in learner.printed
    assert "task 55" in actors[2].printed


@tzmq
def test_actors_wait_for_a_learner_that_dies_and_comes_back(hands: Terminals, free_port: str) -> None:
    actor = hands.type("actor.py", "--lrn_addr", f"localhost:{free_port}")
    learner = hands.type("learner.py", "--port", free_port, "--steps", "1000000")
    actor.until_printed("model 5")
    learner.process.kill()
    learner.ends()
    actor.until_printed("no answer from the learner")

    again = hands.type("learner.py", "--port", free_port)

    assert [again.ends(), actor.ends()] == [0, 0]
    assert "answers again" in actor.printed


@tzmq
def test_an_actor_gives_up_with_a_message(hands: Terminals, free_port: str) -> None:
    actor = hands.type("actor.py", "--lrn_addr", f"localhost:{free_port}", "--patience", "0.3")

    assert actor.ends() == 1
    assert f"no answer from the learner at localhost:{free_port} for 0.3 s; giving up" in actor.printed


@tzmq
def test_an_address_that_is_none_is_told_in_a_sentence(hands: Terminals) -> None:
    actor = hands.type("actor.py", "--lrn_addr", "bogus")

    assert actor.ends() == 1
    assert actor.printed.startswith("--lrn_addr 'bogus' is not a HOST:PORT address")
    assert actor.printed.count("\n") == 1


@tzmq
def test_a_trajectory_that_is_sent_again_counts_once(hands: Terminals, free_port: str) -> None:
    learner = hands.type("learner.py", "--port", free_port, "--steps", "3")

    with zmq.Context() as context, context.socket(zmq.REQ) as peer:
        peer.linger = 0
        peer.rcvtimeo = int(PATIENCE * 1000)
        peer.connect(f"tcp://localhost:{free_port}")
        answers = []
        for sender, sequence in [("a", 0), ("a", 0), ("b", 0), ("a", 0), ("b", 0), ("a", 1), ("b", 1)]:
            peer.send_json({"sender": sender, "sequence": sequence})
            answers.append(json.loads(peer.recv())["done"])

    assert answers == [False, False, False, False, False, True, True]
    assert learner.ends() == 0


@tzmq
def test_the_learner_refuses_what_is_no_trajectory(hands: Terminals, free_port: str) -> None:
    hands.type("learner.py", "--port", free_port, "--steps", "1")

    with zmq.Context() as context, context.socket(zmq.REQ) as peer:
        peer.linger = 0
        peer.rcvtimeo = int(PATIENCE * 1000)
        peer.connect(f"tcp://localhost:{free_port}")
        for message, answer in [
            (b"hello", "error"),
            (b"[]", "error"),
            (b'{"sender": "a", "sequence": 0}', "done"),
        ]:
            peer.send(message)
            assert answer in json.loads(peer.recv())


@tzmq
@pytest.mark.parametrize("program", ["learner.py", "actor.py"])
def test_sigterm_ends_either_program_with_143(hands: Terminals, free_port: str, program: str) -> None:
    address = f"localhost:{free_port}"
    learner = hands.type("learner.py", "--port", free_port, "--steps", "1000000")
    actor = hands.type("actor.py", "--lrn_addr", address)
    learner.until_printed("listening")
    actor.until_printed("model")

    chosen = learner if program == "learner.py" else actor
    chosen.process.terminate()

    assert chosen.ends(within=20) == 143


def test_every_part_of_the_simulation_answers_at_its_stable_address(callsheet: Callsheet) -> None:
    callsheet("run", "-d", "-f", str(EXAMPLES / "simulation" / "experiment.yaml"))
    run = found("simulation")
    until(run, lambda status: all(r.ready for r in status.replicas) and len(status.replicas) == 4)

    first = callsheet("exec", run.id, "trainer/0", "--", "python", "jump.py")
    callsheet("scale", run.id, "simulation=4")
    until(run, lambda status: all(r.ready for r in status.replicas) and len(status.replicas) == 5)
    second = callsheet("exec", run.id, "trainer/0", "--", "python", "jump.py")

    assert len(first.splitlines()) == 7
    for index in range(3):
        own = f"role=simulation index={index}"
        assert re.search(rf"policy/{index} .*container=policy {own} simulator=\[container=sim {own}\]", first)
        assert re.search(rf"sim/{index} .*container=sim {own}", first)
    assert re.search(r"trainer/0 .*container=trainer role=trainer index=0", first)
    assert [line.split("rounds")[0] for line in first.splitlines()] == [
        line.split("rounds")[0] for line in second.splitlines() if "index=3" not in line
    ]
    assert "simulator=[container=sim role=simulation index=3]" in second
    run.stop()
    assert run.wait(PATIENCE).phase == "Stopped"


def test_a_killed_policy_comes_back_at_the_same_address(callsheet: Callsheet) -> None:
    callsheet("run", "-d", "-f", str(EXAMPLES / "simulation" / "experiment.yaml"))
    run = found("simulation")
    status = until(run, lambda status: all(r.ready for r in status.replicas) and len(status.replicas) == 4)
    before = replica(status, "simulation/1")

    kill(status, "simulation/1")
    status = until(run, lambda status: (r := replica(status, "simulation/1")).ready and r.attempt == 1)

    assert replica(status, "simulation/1").host == before.host
    callsheet("exec", run.id, "trainer/0", "--", "python", "jump.py")


@simulation
def test_the_simulation_runs_by_hand(hands: Terminals) -> None:
    here, there = free_address(), free_address()
    sim = hands.type("sim.py", "--bind", there)
    policy = hands.type("policy.py", "--bind", here, "--sim", there)
    sim.until_printed("listening")
    policy.until_printed("listening")

    jump = hands.type("jump.py", here, there)
    assert jump.ends() == 0
    assert (
        "container=policy role=by-hand index=0 simulator=[container=sim role=by-hand index=0]" in jump.printed
    )

    sim.process.terminate()
    assert sim.ends() == 143
    jump = hands.type("jump.py", here)
    assert jump.ends() == 1
    assert f"answers 503: no answer from http://{there}" in jump.printed
    policy.process.terminate()
    assert policy.ends() == 143


def test_the_symphony_script_runs_on_this_machine(env: dict[str, str], callsheet: Callsheet) -> None:
    script = [sys.executable, "-W", "error", str(EXAMPLES / "symphony" / "experiment.py")]

    done = subprocess.run(script, env=env | {"CALLSHEET_ON": "local"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    run = found("rl")
    status = run.wait(PATIENCE)

    assert f"callsheet logs {run.id} -f" in done.stdout
    assert status.phase == "Succeeded"
    last = lines(run, "learner/0")[-1]
    before, after = (float(number) for number in re.findall(r"-?\d+\.\d+", last))
    assert after > before


@symphony
def test_the_symphony_programs_run_by_hand_and_show_their_progress(hands: Terminals) -> None:
    names = ["REPLAY_SERVER", "PARAMETER_SERVER", "TENSORBOARD"]
    addresses = {name: free_address() for name in names}
    variables = {f"SYMPH_{name}_ADDR": address for name, address in addresses.items()}
    binds = {f"CALLSHEET_{name}_BIND": address for name, address in addresses.items()}
    page_address = f"http://{addresses['TENSORBOARD']}/"
    learner = hands.type("learner.py", **variables, **binds)
    learner.until_printed(f"progress: {page_address}")

    with urlopen(page_address, timeout=PATIENCE) as page:
        assert "<th>return" in page.read().decode()
    agent = hands.type("agent.py", "--env", "half-cheetah", **variables)

    assert [learner.ends(), agent.ends()] == [0, 0]
    assert "done at version 200" in agent.printed


def test_a_learner_and_actors_of_ones_own_learn(callsheet: Callsheet) -> None:
    output = callsheet("run", "-f", str(EXAMPLES / "own" / "experiment.yaml"))
    assert re.search(r"done after \d+ updates: 90% right", output)


def test_the_page_about_them_shows_these_very_programs() -> None:
    page = (EXAMPLES.parent / "docs" / "how-to" / "write-a-learner.md").read_text()
    for name in ("learner.py", "actor.py", "experiment.yaml"):
        assert (EXAMPLES / "own" / name).read_text() in page


@pytest.mark.parametrize("name", ["WithNumPy", "WithPyTorch"])
@pytest.mark.long
def test_an_algorithm_of_ones_own_learns(name: str, folder: Path) -> None:
    (folder / "reinforce.py").write_text((EXAMPLES / "algorithm" / "reinforce.py").read_text())
    command = [sys.executable, "-m", "callsheet", "train", f"reinforce:{name}", "--env", "CartPole-v1"]
    command += ["--stop-sampled", "150", "--evaluate-every", "0", "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (result,) = folder.glob("runs/*/*/result.json")
    assert json.loads(result.read_text())["return"] >= 150
