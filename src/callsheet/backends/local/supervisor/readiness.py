"""When a container is ready: its probe says so, or its bound ports listen, or it is alive.

Ports are looked up for all containers at once in /proc, every few milliseconds just after a start, less often later,
and never while nothing waits. A probe continues after it has passed, as in Kubernetes.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from callsheet.backends.local.supervisor.listening import can_connect, is_listening, listeners
from callsheet.backends.local.supervisor.processes import Processes
from callsheet.lifecycle.restart import describe_exit
from callsheet.plan.model import ProbePlan

FASTEST, SLOWEST = 0.02, 0.25
EAGER_PERIOD = 0.2
"""Seconds between two runs of a probe until it passes."""


class PortWatch:
    """Notifies containers when all their ports listen."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[object, tuple[str, Sequence[int], Callable[[], None]]] = {}
        """By container: its host, the ports that do not listen yet, the callback."""
        self._timer: asyncio.TimerHandle | None = None
        self._delay = FASTEST

    def wait(self, key: object, host: str, ports: Sequence[int], on_ready: Callable[[], None]) -> None:
        """Call `on_ready` once when every port of the host listens."""
        self._waiting[key] = (host, ports, on_ready)
        self._delay = FASTEST
        if self._timer:
            self._timer.cancel()
        self._timer = self._loop.call_later(self._delay, self._look)

    def not_listening(self, key: object) -> Sequence[int]:
        """The ports that did not listen at the last check."""
        return self._waiting[key][1] if key in self._waiting else ()

    def forget(self, key: object) -> None:
        """Stop waiting."""
        self._waiting.pop(key, None)

    def _look(self) -> None:
        self._timer = None
        linux = sys.platform == "linux"
        table = listeners() if linux else {}
        for key, (host, ports, on_ready) in list(self._waiting.items()):
            closed = [
                port
                for port in ports
                if not (is_listening(table, host, port) if linux else can_connect(host, port))
            ]
            self._waiting[key] = (host, closed, on_ready)
            if not closed:
                del self._waiting[key]
                on_ready()
        if self._waiting:
            self._delay = min(self._delay * 1.3, SLOWEST)
            self._timer = self._loop.call_later(self._delay, self._look)


async def watch_probe(
    probe: ProbePlan,
    host: str,
    env: Mapping[str, str],
    processes: Processes,
    on_answer: Callable[[bool], None],
    on_failure: Callable[[str], None],
) -> None:
    """Run the probe periodically; report each change of readiness, and why it failed."""
    await asyncio.sleep(probe.initial_delay)
    ready, passes, failures = False, 0, 0
    while True:
        started = time.monotonic()
        failure = await _ask(probe, host, env, processes)
        on_failure(failure)
        passes, failures = (0, failures + 1) if failure else (passes + 1, 0)
        if not ready and passes >= probe.successes:
            ready = True
            on_answer(True)
        elif ready and failures >= probe.failures:
            ready = False
            on_answer(False)
        period = probe.period if ready else min(probe.period, EAGER_PERIOD)
        await asyncio.sleep(max(0.0, started + period - time.monotonic()))


async def _ask(probe: ProbePlan, host: str, env: Mapping[str, str], processes: Processes) -> str:
    """Why the probe failed; empty if it passed."""
    try:
        async with asyncio.timeout(probe.timeout):
            if probe.kind == "exec":
                return await _run(probe.command, env, processes)
            return await _connect(probe, probe.host or host)
    except TimeoutError:
        return f"no answer within {probe.timeout} s"
    except ConnectionRefusedError:
        return f"nothing listens on port {probe.port}"
    except OSError as error:
        return error.strerror or str(error)
    except ValueError as error:  # not HTTP
        return str(error)


async def _run(command: Sequence[str], env: Mapping[str, str], processes: Processes) -> str:
    if not command:
        return "its command is empty"
    done: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def ended(code: int) -> None:
        if not done.done():
            done.set_result(code)

    with open(os.devnull, "wb") as null:
        pid = processes.start(command, env, null.fileno(), ended)
    try:
        code = await done
        return "" if code == 0 else f"{command[0]}: {describe_exit(code)}"
    finally:
        if not done.done() or done.cancelled():
            processes.kill(pid)


async def _connect(probe: ProbePlan, host: str) -> str:
    context: ssl.SSLContext | None = None
    if probe.kind == "http" and probe.scheme == "HTTPS":
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    reader, writer = await asyncio.open_connection(host, probe.port, ssl=context)
    try:
        if probe.kind == "tcp":
            return ""
        head = f"GET {probe.path} HTTP/1.1\r\nHost: {host}:{probe.port}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode())
        line = (await reader.readline()).split()
        if len(line) >= 2 and line[1].isdigit() and 200 <= int(line[1]) < 400:
            return ""
        shown = line[1].decode(errors="replace") if len(line) >= 2 else "no status"
        return f"{probe.path} answered {shown}"
    finally:
        writer.close()
