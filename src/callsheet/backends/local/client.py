"""A handle on one local run: talks to its supervisor while there is one, reads its folder afterwards."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from callsheet import contract
from callsheet.backends.base import LogLine, LogQuery, Status, Target, wait_for_end
from callsheet.backends.local import registry
from callsheet.backends.local.logs import read_logs
from callsheet.backends.local.supervisor import procfs
from callsheet.backends.local.supervisor.files import Layout
from callsheet.backends.local.supervisor.guard import mark_lost
from callsheet.backends.log_chunks import LogChunk, lines
from callsheet.backends.status import status_of
from callsheet.errors import NoSuchProgram, RetryError, UserError

if TYPE_CHECKING:
    from callsheet.backends.local.metrics import LocalMetrics
    from callsheet.metrics.reader import ProcessMetrics

TIMEOUT = 10.0
ASK_EVERY = 1.0
"""Seconds between two looks for the supervisor while a log is followed."""
T = TypeVar("T")


class LocalRun:
    """One run on this machine, running or finished."""

    def __init__(self, folder: Path, keep_alive: socket.socket | None = None) -> None:
        self.layout = Layout(folder)
        self.id = folder.name
        self.experiment = folder.parent.name
        self._asked = 0.0
        self._answers = True
        self._metrics: LocalMetrics | None = None
        self._keep_alive = keep_alive.detach() if keep_alive else None
        """The run stops when this end is closed, so when the program that started it exits. A bare descriptor, which
        outlives this handle: dropping the handle does not end the run."""

    @property
    def outlives_us(self) -> bool:
        """Whether it continues after this program exits."""
        return self._keep_alive is None

    needs_attached_client = False

    @property
    def notes(self) -> Sequence[str]:
        """Empty: here every start makes a new run."""
        return ()

    def attach(self) -> None:
        """Nothing to do: its supervisor drives it."""

    @property
    def folder(self) -> Path:
        """Where its results are."""
        return self.layout.folder

    def status(self) -> Status:
        """The run now."""
        return self._status(None, 0.0)[0]

    def _status(self, since: int | None, timeout: float) -> tuple[Status, int]:
        try:
            answer = self._ask({"op": "status", "since": since, "timeout": timeout}, timeout + TIMEOUT)
            return Status.from_data(answer["status"]), answer["version"]
        except (FileNotFoundError, ConnectionError):
            return self._status_on_disk(), -1

    def _status_on_disk(self) -> Status:
        try:
            status = status_of(Path(self.layout.status).read_bytes(), self.layout.status)
        except FileNotFoundError:
            raise UserError(
                f"the run {self.id} has no status", fix=f"see {self.layout.supervisor_log}"
            ) from None
        if status.done:
            return status
        # Nobody answers on the control socket and no final status was written: the supervisor is gone. Its process
        # id proves nothing, because another process may have it by now.
        if procfs.find_processes(procfs.identity(self.id)):
            status.phase, status.reason = (
                "Stopping",
                "its supervisor was killed; its processes are being stopped",
            )
            return status
        # The guard writes this too, unless it was killed as well.
        lost = mark_lost(self.layout.status)
        return Status.from_data(lost) if lost else status

    def watch(self, interval: float = 0.5) -> Iterator[Status]:
        """The run now and then whenever it changed, at least every `interval` seconds, until it has ended."""
        version: int | None = None
        while True:
            started = time.monotonic()
            status, version = self._status(version, interval)
            yield status
            if status.done:
                self._release()
                return
            if version < 0:  # no supervisor to wait for: somebody is cleaning up
                time.sleep(max(0.0, started + min(interval, 0.1) - time.monotonic()))

    def _release(self) -> None:
        if self._keep_alive is not None:
            os.close(self._keep_alive)
            self._keep_alive = None

    def wait(self, timeout: float | None = None) -> Status:
        """Block until the run has ended."""
        return wait_for_end(self, timeout)

    def logs(self, query: LogQuery | None = None) -> Iterator[LogLine]:
        """Lines of output."""
        return lines(self.log_chunks(query))

    def log_chunks(self, query: LogQuery | None = None) -> Iterator[LogChunk]:
        """The same, many lines at a time."""
        return read_logs(self.layout.logs, query or LogQuery(), self._has_ended)

    def metrics(self) -> list[ProcessMetrics]:
        """The newest metrics of every process that exports some."""
        from callsheet.backends.local.metrics import LocalMetrics

        if self._metrics is None:
            self._metrics = LocalMetrics(self.layout)
        return self._metrics.read()

    def _has_ended(self) -> bool:
        """Whether nothing more will be written; cheap enough to call many times a second."""
        if not os.path.exists(self.layout.socket):
            return True
        if time.monotonic() - self._asked > ASK_EVERY:
            self._asked = time.monotonic()
            self._answers = self._is_answered()
        return not self._answers

    def _is_answered(self) -> bool:
        """Whether there is a supervisor behind the control socket."""
        try:
            self._connect(TIMEOUT).close()
        except (FileNotFoundError, ConnectionError):
            return False
        return True

    def scale(self, replicas: Mapping[str, int]) -> Status:
        """Change the size of elastic roles."""
        from callsheet.backends.local.replan import replan_scaled

        def scale() -> None:
            status = self.status()
            plan = replan_scaled(self.layout, status, replicas)
            self._command({"op": "apply", "generation": status.generation, "plan": plan.to_data()})

        _retry(scale)
        return self.status()

    def restart(self, targets: Sequence[Target]) -> list[str]:
        """Restart replicas; returns their names."""
        status = self.status()
        chosen = [
            (replica.role, replica.index)
            for replica in status.replicas
            if not replica.joined and any(target.matches(replica.role, replica.index) for target in targets)
        ]
        for target in targets:
            if not any(target.matches(role, index) for role, index in chosen):
                raise UserError(
                    f"the run has no replica {_shown(target)!r}", fix=f"see: callsheet status {self.id}"
                )
        names: list[str] = self._command({"op": "restart", "replicas": chosen})
        return names

    def stop(self, *, kill: bool = False, reason: str = "", code: int | None = None) -> None:
        """Ask every process to stop; with `kill`, kill it immediately."""
        try:
            self._ask({"op": "stop", "kill": kill, "reason": reason, "code": code}, TIMEOUT)
        except (FileNotFoundError, ConnectionError):
            if not self._status_on_disk().done:
                procfs.end_run(self.id, 0.0 if kill else 1.0)

    def exec(self, target: Target, command: Sequence[str], *, stdin: bool = False, tty: bool = False) -> int:
        """Run a command in the environment of a replica; returns its exit code."""
        request = {"op": "environment", "role": target.role, "index": target.index or 0}
        containers = self._command(request)
        name = target.container or next(iter(containers))
        if name not in containers:
            known = ", ".join(containers)
            raise UserError(f"{_shown(target)!r} has no container {name!r}", fix=f"choose one of: {known}")
        place = containers[name]
        return _run(command, place["env"], place["cwd"])

    def join(self, role: str, command: Sequence[str]) -> int:
        """Start one more member of a role in this terminal; returns its exit code."""
        from callsheet.backends.local.replan import replan_joined

        with self._connected() as connection:

            def enter() -> tuple[str, dict[str, str]]:
                status = self.status()
                plan, index = replan_joined(self.layout, status, role)
                request = {"op": "join", "generation": status.generation, "role": role, "index": index}
                answer = _answer(connection, request | {"plan": plan.to_data()})
                return plan.workdir, answer["env"]

            workdir, env = _retry(enter)
            connection.settimeout(None)
            base = {name: value for name, value in os.environ.items() if not name.startswith(contract.PREFIX)}
            return _run(command, base | env, workdir, connection)

    def delete(self) -> None:
        """Remove the finished run with its results."""
        if not self.status().done:
            raise UserError(
                f"the run {self.id} has not ended", fix=f"stop it first: callsheet stop {self.id}"
            )
        limit = time.monotonic() + TIMEOUT
        while self._is_answered():
            if time.monotonic() > limit:
                raise RetryError(
                    f"the supervisor of the run {self.id} has not exited", fix="wait and try again"
                )
            time.sleep(0.02)  # it lingers for a moment, and is not our child, so we cannot wait for it
        registry.delete(self.folder)

    def _command(self, request: dict[str, Any]) -> Any:
        with self._connected() as connection:
            return _answer(connection, request).get("result")

    def _connected(self) -> socket.socket:
        """A connection to the supervisor, for what only a running run can do."""
        try:
            return self._connect(TIMEOUT)
        except (FileNotFoundError, ConnectionError):
            raise UserError(f"the run {self.id} has ended", fix="start a new one: callsheet run") from None

    def _ask(self, request: dict[str, Any], timeout: float) -> dict[str, Any]:
        with self._connect(timeout) as connection:
            return _answer(connection, request)

    def _connect(self, timeout: float) -> socket.socket:
        """Connect through the folder's descriptor: the path may be longer than a socket's name may be."""
        folder = os.open(self.layout.private, os.O_RDONLY | os.O_DIRECTORY)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(timeout)
        try:
            through = f"/proc/self/fd/{folder}/control.sock"
            connection.connect(through if os.path.exists("/proc/self/fd") else self.layout.socket)
        except OSError:
            connection.close()
            raise
        finally:
            os.close(folder)
        return connection


def _retry(change: Callable[[], T]) -> T:
    """Make a change; if somebody else makes one at the same moment, look and try again."""
    for _ in range(20):
        try:
            return change()
        except RetryError as error:
            last = error
    raise last


def _answer(connection: socket.socket, request: dict[str, Any]) -> dict[str, Any]:
    try:
        connection.sendall(json.dumps(request).encode() + b"\n")
        parts = []
        while part := connection.recv(1 << 20):
            parts.append(part)
            if part.endswith(b"\n"):
                break
    except TimeoutError:
        raise RetryError(
            "the supervisor did not answer in time", fix="the machine may be overloaded; try again"
        ) from None
    if not parts:
        raise ConnectionResetError("the supervisor closed the connection")
    answer: dict[str, Any] = json.loads(b"".join(parts))
    if "error" in answer:
        raise (RetryError if answer.get("retry") else UserError)(answer["error"], fix=answer["fix"])
    return answer


def _run(
    command: Sequence[str], env: Mapping[str, str], cwd: str, connection: socket.socket | None = None
) -> int:
    """Run a program in this terminal; if `connection` ends first, so does the program."""
    try:
        child = subprocess.Popen(command, env=dict(env), cwd=cwd)
    except OSError as error:
        kind = NoSuchProgram if isinstance(error, FileNotFoundError) else UserError
        raise kind(f"cannot start {command[0]!r}: {error.strerror}", fix="check the command") from error
    while True:
        try:
            code = child.wait(0.1 if connection else None)
            return code if code >= 0 else 128 - code
        except subprocess.TimeoutExpired:
            if connection and select.select([connection], [], [], 0)[0]:
                child.terminate()
                connection = None
        except KeyboardInterrupt:
            continue  # the program in this terminal got it too; wait for it to exit


def _shown(target: Target) -> str:
    return target.role if target.index is None else f"{target.role}/{target.index}"
