"""Running an experiment from Python."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

from local_runs import eventually, is_gone, python

from callsheet import Experiment
from callsheet.backends.base import LogQuery, backend


def test_a_run_is_waited_for_and_read(folder: Path) -> None:
    exp = Experiment("hello", base=folder)
    exp.role("a", command=[*python("import sys; print('index', sys.argv[1])"), "{index}"], replicas=2)

    run = exp.run()

    assert run.wait(20).phase == "Succeeded"
    assert sorted(line.text for line in run.logs(LogQuery())) == ["index 0", "index 1"]
    assert (folder / "runs" / "hello" / run.id / "experiment.yaml").read_text() == exp.to_yaml()


def test_dropping_the_handle_does_not_end_the_run(folder: Path) -> None:
    exp = Experiment("dropped", base=folder)
    exp.role("a", command=["sleep", "600"])

    exp.run()
    gc.collect()

    run = backend("local").find("dropped")
    eventually(lambda: run.status().phase == "Running")
    run.stop(kill=True)
    assert run.wait(20).phase == "Stopped"


def test_a_run_ends_with_the_program_that_started_it_unless_detached(folder: Path) -> None:
    script = (
        "from callsheet import Experiment\n"
        "import sys\n"
        "exp = Experiment(sys.argv[1])\n"
        "exp.role('a', command=['sleep', '600'])\n"
        "run = exp.run(detach=sys.argv[1] == 'stays')\n"
        "next(s for s in run.watch() if s.phase == 'Running')\n"
    )
    for name in ("goes", "stays"):
        subprocess.run([sys.executable, "-W", "error", "-c", script, name], check=True, timeout=30)

    goes, stays = backend("local").find("goes"), backend("local").find("stays")
    assert goes.wait(20).phase == "Stopped"
    assert stays.status().phase == "Running"
    pid = stays.status().replicas[0].containers[0].pid
    stays.stop(kill=True)
    stays.wait(20)
    assert is_gone(pid)
