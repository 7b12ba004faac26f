"""Runs a command in a replica's container, with this terminal's input and output, over a WebSocket."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO

from callsheet.backends.kubernetes.client.api import Api, Object
from callsheet.backends.kubernetes.client.errors import Unreachable
from callsheet.errors import NoSuchProgram, UserError

if TYPE_CHECKING:
    from callsheet.backends.kubernetes.client.http import WebSocket

_PROTOCOL = "v5.channel.k8s.io"
_STDIN, _STDOUT, _STDERR, _ERROR, _RESIZE, _CLOSE = 0, 1, 2, 3, 4, 255
_CHUNK = 64 * 1024


def run_in_pod(
    api: Api, pod: Object, container: str, command: Sequence[str], *, stdin: bool = False, tty: bool = False
) -> int:
    """Run a command beside the container's own process; its exit code."""
    output = {_STDOUT: sys.stdout.buffer, _STDERR: sys.stderr.buffer}
    source = sys.stdin.buffer if stdin else None
    with _raw_terminal() if tty else contextlib.nullcontext():
        return exec_in_pod(api, pod, container, command, source=source, output=output, tty=tty)


def exec_in_pod(
    api: Api,
    pod: Object,
    container: str,
    command: Sequence[str],
    *,
    source: BinaryIO | None = None,
    output: dict[int, BinaryIO],
    tty: bool = False,
) -> int:
    """The same with any streams; `output` by channel: 1 for stdout, 2 for stderr."""
    name = pod["metadata"]["name"]
    params = [("command", word) for word in command] + [("stdout", "true")]
    params += [("container", container or pod["spec"]["containers"][0]["name"])]
    params += [("tty", "true")] if tty else [("stderr", "true")]
    params += [("stdin", "true")] if source else []
    what = f"run a command in the pod {name}"
    socket = api.run(api.client.websocket(name, "exec", params, _PROTOCOL, what))
    ended = threading.Event()
    try:
        if source:
            threading.Thread(target=_send, args=(api, socket, source, ended), daemon=True).start()
        with _resizing(api, socket) if tty else contextlib.nullcontext():
            return _receive(api, socket, output, command)
    finally:
        ended.set()
        api.run(socket.aclose())


def _receive(api: Api, socket: WebSocket, output: dict[int, BinaryIO], command: Sequence[str]) -> int:
    while message := api.run(socket.receive()):
        channel, data = message[0], message[1:]
        if channel in output:
            output[channel].write(data)
            output[channel].flush()
        elif channel == _ERROR:
            return _exit_code(json.loads(data), command)
    raise Unreachable("the connection was closed before the command ended", fix="try again")


def _exit_code(status: Object, command: Sequence[str]) -> int:
    if status.get("status") == "Success":
        return 0
    for cause in (status.get("details") or {}).get("causes") or []:
        if cause.get("reason") == "ExitCode":
            return int(cause["message"])
    text = str(status.get("message", ""))
    if "not found" in text or "no such file" in text:
        raise NoSuchProgram(f"the container has no program {command[0]!r}", fix="name one that its image has")
    raise Unreachable(f"the command could not be run: {' '.join(text.split())[:300]}", fix="try again")


def _send(api: Api, socket: WebSocket, source: BinaryIO, ended: threading.Event) -> None:
    """Send our input until it ends or the command does."""
    with contextlib.suppress(Unreachable):  # the command has ended: nobody wants the rest
        while not ended.is_set():
            if not _has_input(source):
                continue
            data = source.read1(_CHUNK) if hasattr(source, "read1") else source.read(_CHUNK)
            api.run(socket.send(bytes((_STDIN,)) + data if data else bytes((_CLOSE, _STDIN))))
            if not data:
                return


def _has_input(source: BinaryIO) -> bool:
    try:
        return bool(select.select([source], [], [], 0.2)[0])
    except (OSError, ValueError):
        return True  # not a file of the system: reading it never blocks


@contextlib.contextmanager
def _raw_terminal() -> Iterator[None]:
    """Every key goes to the command, Ctrl-C too; afterwards the terminal is restored."""
    import termios
    import tty as terminal

    if not sys.stdin.isatty():
        raise UserError("-t needs a terminal, and standard input is not one", fix="leave -t out")
    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    terminal.setraw(number)
    try:
        yield
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)


@contextlib.contextmanager
def _resizing(api: Api, socket: WebSocket) -> Iterator[None]:
    """Send the command the size of our terminal, now and whenever it changes."""

    def send(*_: object) -> None:
        columns, lines = shutil.get_terminal_size()
        size = json.dumps({"Width": columns, "Height": lines}).encode()
        api.start(socket.send(bytes((_RESIZE,)) + size))

    send()
    if threading.current_thread() is not threading.main_thread() or os.name != "posix":
        yield
        return
    before = signal.signal(signal.SIGWINCH, send)
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)
