"""The command line in the cluster as a person at a terminal has it: keys go in, the live view is drawn."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cluster_runs import FOREVER, begin, callsheet, cloud, folder, python, until_running
from kubectl import Kube, eventually

from callsheet.backends.kubernetes.run import KubernetesRun

__all__ = ["begin", "cloud", "folder"]


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, command: list[str]) -> None:
        self.ours, theirs = pty.openpty()
        env = os.environ | {"CALLSHEET_ON": "kubernetes", "TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=env, start_new_session=True
        )
        os.close(theirs)
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self.ours, text.encode())

    def until(self, text: str, seconds: float = 30) -> None:
        """Read until the text has been shown."""
        end = time.monotonic() + seconds
        while text not in self.seen:
            assert time.monotonic() < end, self.seen
            if select.select([self.ours], [], [], 0.2)[0]:
                try:
                    self.seen += os.read(self.ours, 65536).decode(errors="replace")
                except OSError:
                    break  # the command has ended
        assert text in self.seen, self.seen


@contextmanager
def terminal(kube: Kube, *words: str) -> Iterator[Terminal]:
    made = Terminal([sys.executable, "-m", "callsheet", words[0], "-n", kube.namespace, *words[1:]])
    try:
        yield made
    finally:
        made.process.kill()
        made.process.wait()
        os.close(made.ours)


def test_a_person_works_inside_a_group_and_watches_it(
    begin: Callable[..., KubernetesRun], namespace: Kube
) -> None:
    sim = f"print('I simulate')\n{FOREVER}"
    group = [{"name": "policy", "command": python(FOREVER)}, {"name": "sim", "command": python(sim)}]
    run = begin({"name": "worker", "containers": group})
    until_running(run)
    eventually(lambda: callsheet(namespace, "logs", run.id, "-c", "sim").stdout == "I simulate\nup\n")
    inside = callsheet(
        namespace, "exec", run.id, "worker/0", "-c", "sim", "--", "printenv", "CALLSHEET_CONTAINER"
    )
    assert inside.stdout == "sim\n", inside.stderr

    place = ["-n", namespace.namespace, run.id, "worker/0"]
    words = [sys.executable, "-m", "callsheet", "exec", "-i", *place, "--", "wc", "-c"]
    env = os.environ | {"CALLSHEET_ON": "kubernetes"}
    piped = subprocess.run(words, input=b"x" * 200_000, capture_output=True, env=env, check=False)
    assert piped.stdout.split() == [b"200000"], piped.stderr

    with terminal(namespace, "exec", "-it", run.id, "worker/0", "--", "sh") as shell:
        shell.until("$ ")
        shell.type("stty size; tty\n")
        shell.until("/dev/pts/")
        assert "30 100" in shell.seen
        shell.type("echo $((40+2)); sleep 600; echo $?\n")
        shell.until("42")
        shell.type("\x03")  # Ctrl-C belongs to what runs there
        shell.until("^C")
        shell.type("exit 5\n")
        assert shell.process.wait(30) == 5

    with terminal(namespace, "attach", run.id) as view:
        view.until("Running")
        view.until("1/1")
        view.process.send_signal(signal.SIGINT)
        view.until("callsheet stop")
        assert view.process.wait(30) == 130
