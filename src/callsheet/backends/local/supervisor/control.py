"""The run's control socket: how other terminals query, scale, restart and stop it.

One JSON object per line each way, on a Unix socket inside a folder that only the run's owner can enter. A client
sends `{"op": ...}` and gets one answer; after `join` the connection stays open for as long as the member lives.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import traceback
from collections.abc import Callable
from typing import Any

from callsheet import contract
from callsheet.backends.local.supervisor import procfs
from callsheet.backends.local.supervisor.run import RunState
from callsheet.errors import CallsheetError, RetryError, UserError
from callsheet.lifecycle.verdict import Verdict
from callsheet.plan.model import plan_from_data

LONGEST_LINE = 512 * 1024 * 1024
"""Bytes: a plan of very many replicas is one line."""

Request = dict[str, Any]


class ControlServer:
    """Answers on the control socket."""

    def __init__(self, run: RunState, path: str) -> None:
        self._run = run
        self._path = path
        self._changed = asyncio.Event()
        self._operations: dict[str, Callable[[Request], Any]] = {
            "stop": self._stop,
            "restart": self._restart,
            "apply": self._apply,
            "environment": self._environment,
        }

    async def start(self) -> None:
        """Listen. The path may be longer than a socket's name may be, so it is reached through its folder."""
        folder = os.open(os.path.dirname(self._path), os.O_RDONLY | os.O_DIRECTORY)
        try:
            short = f"/proc/self/fd/{folder}/{os.path.basename(self._path)}"
            path = short if os.path.exists("/proc/self/fd") else self._path
            await asyncio.start_unix_server(self._serve, path, limit=LONGEST_LINE)
            os.chmod(self._path, 0o600)
        finally:
            os.close(folder)

    def notify(self) -> None:
        """The status has changed: answer clients that wait for it."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                request = json.loads(line)
                if not isinstance(request, dict):
                    raise ValueError(f"a request is a JSON object, not a {type(request).__name__}")
                answer = await self._answer(request, writer)
                await _send(writer, answer)
                if request.get("op") == "join" and "error" not in answer:
                    await self._keep_member(request, reader)
        except ConnectionError:
            pass  # a client that went away
        except (
            ValueError,
            RecursionError,
        ) as error:  # not our protocol: close the connection
            with contextlib.suppress(ConnectionError):
                await _send(writer, {"error": str(error), "fix": "use one version of Callsheet"})
        finally:
            writer.close()

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> Request:
        operation = str(request.get("op"))
        try:
            if operation == "status":
                return {
                    "version": await self._wait_for_change(request),
                    "status": self._run.status().to_data(),
                }
            if operation == "join":
                plan = plan_from_data(request["plan"])
                who = (request["role"], request["index"])
                # Closing our end of the connection asks the member's terminal to stop.
                return {"env": self._run.join(plan, request["generation"], *who, writer.write_eof)}
            if operation not in self._operations:
                raise UserError(
                    f"the supervisor does not know {operation!r}", fix="use one version of Callsheet"
                )
            return {"result": self._operations[operation](request)}
        except CallsheetError as error:
            return {"error": error.message, "fix": error.fix, "retry": isinstance(error, RetryError)}
        except Exception as error:  # noqa: BLE001 - a request that fails must be answered, and the run continues
            traceback.print_exc()
            return {"error": f"the supervisor failed: {error!r}", "fix": "please report this with its log"}

    async def _wait_for_change(self, request: Request) -> int:
        """Wait until something has changed since `since`, at most `timeout` seconds."""
        if request.get("since") == self._run.version:
            try:
                async with asyncio.timeout(float(request.get("timeout", 0.0))):
                    await self._changed.wait()
            except TimeoutError:
                pass
        return self._run.version

    async def _keep_member(self, request: Request, reader: asyncio.StreamReader) -> None:
        """Keep a member that was started by hand in the address book until its terminal disconnects."""
        role, index = request["role"], request["index"]
        try:
            await reader.read()
        finally:
            self._run.leave(role, index)
            left = procfs.find_processes(procfs.identity(self._run.plan.run, role, index))
            procfs.send_signal(left, signal.SIGTERM)

    def _stop(self, request: Request) -> None:
        reason = request.get("reason") or "stopped by its owner"
        code = int(request.get("code") or contract.EXIT_STOPPED)
        self._run.stop(Verdict("Stopped", reason, code), kill=bool(request.get("kill")))

    def _restart(self, request: Request) -> list[str]:
        if self._run.outcome:
            raise UserError(f"the run is {self._run.phase}", fix="start a new run")
        named = {(role, index) for role, index in request["replicas"]}
        chosen = [replica for key, replica in self._run.replicas.items() if key in named]
        for replica in chosen:
            replica.stop("restart")
        return [replica.name for replica in chosen]

    def _apply(self, request: Request) -> None:
        self._run.apply(plan_from_data(request["plan"]), request["generation"])

    def _environment(self, request: Request) -> Request:
        replica = self._run.replicas.get((request["role"], request["index"]))
        if replica is None:
            raise UserError(
                f"there is no replica {request['role']}/{request['index']}", fix="see: callsheet status"
            )
        return self._run.describe(replica)


async def _send(writer: asyncio.StreamWriter, answer: Request) -> None:
    writer.write(json.dumps(answer).encode() + b"\n")
    await writer.drain()
