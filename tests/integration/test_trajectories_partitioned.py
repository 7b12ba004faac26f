"""Networks that break between writers and a reader: hosts that lose sight of each other, and a proxy that spoils."""

from __future__ import annotations

import os
import random
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from free_ports import free_ports
from local_runs import eventually
from trajectory_programs import act_durably, learn_durably, start, stored_and_promised

ACTORS = 2
READER = "10.213.0.1"


class Host:
    """A network of its own, as another machine has it."""

    def __init__(self, beside: Host | None = None) -> None:
        unshare = ["unshare", "--net", "sh", "-c", "echo made && exec cat"]
        if beside is None and os.geteuid() != 0:
            unshare[1:1] = ["--user", "--map-root-user"]
        command = [*beside.enter, *unshare] if beside and os.geteuid() != 0 else unshare
        self._holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._holder.stdout
        assert self._holder.stdout.readline() == "made\n"
        self.pid = self._holder.pid

    @property
    def enter(self) -> list[str]:
        """Begins a command that runs on this host."""
        user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        return ["nsenter", f"--target={self.pid}", "--net", *user]

    def run(self, command: str) -> None:
        """Run a command there."""
        subprocess.run([*self.enter, *command.split()], check=True)

    def close(self) -> None:
        """The network goes with its last process."""
        self._holder.kill()
        self._holder.communicate()


@contextmanager
def two_hosts() -> Iterator[tuple[Host, Host]]:
    """A reader's host and a writers' host, with a cable between them."""
    reader = Host()
    try:
        writers = Host(beside=reader)
        try:
            reader.run(f"ip link add cable type veth peer name cable netns {writers.pid}")
            for host, address in ((reader, READER), (writers, "10.213.0.2")):
                host.run("ip link set lo up")
                host.run(f"ip address add {address}/24 dev cable")
                host.run("ip link set cable up")
            yield reader, writers
        finally:
            writers.close()
    finally:
        reader.close()


@contextmanager
def program(host: Host, function: str, *arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    """One of the programs of trajectory_programs.py on a host."""
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
    code += f"from trajectory_programs import {function}\n{function}{arguments!r}\n"
    with subprocess.Popen([*host.enter, sys.executable, "-c", code]) as process:
        try:
            yield process
        finally:
            process.kill()


def batches(folder: Path) -> int:
    return sum(1 for _ in folder.glob("batch-*"))


def check(folder: Path) -> None:
    stored, promised = stored_and_promised(folder, ACTORS)
    assert len(stored) == len(set(stored)), "nothing twice"
    assert set(stored) == promised
    assert len(promised) > 500


@pytest.mark.parametrize("carrier", ["network", "encrypted"])
def test_hosts_that_lose_sight_of_each_other_go_on_when_they_meet_again(carrier: str, tmp_path: Path) -> None:
    """A short cut that nobody notices, and one after which both sides have given the connection up."""
    with two_hosts() as (here, there), ExitStack() as running:
        address = f"{READER}:7000"
        reader = running.enter_context(program(here, "learn_durably", carrier, address, str(tmp_path)))
        writers = [
            running.enter_context(program(there, "act_durably", carrier, address, index, str(tmp_path)))
            for index in range(ACTORS)
        ]
        for cut in (0.5, 6.0):
            before = batches(tmp_path)
            eventually(lambda before=before: batches(tmp_path) > before + 10, within=30)
            there.run("ip link set cable down")
            eventually(lambda: quiet(tmp_path), within=20)
            silent = batches(tmp_path)
            time.sleep(cut)
            assert batches(tmp_path) == silent, "nothing passes a cable that is cut"
            there.run("ip link set cable up")
            eventually(lambda silent=silent: batches(tmp_path) > silent, within=10)
        (tmp_path / "finish").touch()
        for writer in writers:
            assert writer.wait(60) == 0
        reader.terminate()
        assert reader.wait(20) == 143
    check(tmp_path)


def quiet(folder: Path) -> bool:
    """Whether nothing more comes: what was on its way has arrived."""
    before = batches(folder)
    time.sleep(1.5)
    return batches(folder) == before


class Spoiler(threading.Thread):
    """A proxy that delays, cuts connections in the middle of a message, and loses bytes of those that are encrypted.

    (Bytes lost inside a connection are no fault of networks, which TCP mends, but of attackers; those who have switched
    encryption off are not protected from them.)"""

    def __init__(self, target: tuple[str, int], *, lossy: bool) -> None:
        super().__init__(daemon=True)
        self._target = target
        self._lossy = lossy
        self._chance = random.Random(3)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        self.on = True
        self.spoilt = {"delayed": 0, "cut": 0, "lost": 0, "closed": 0}

    def run(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._target)
            except OSError:
                client.close()
                continue
            pair = (client, server)
            for one, other in (pair, pair[::-1]):
                threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                chance = self._chance.random() if self.on else 1.0
                if chance < 0.005:
                    self.spoilt["cut"] += 1
                    sink.sendall(data[: len(data) // 2])
                    break
                if chance < 0.01:
                    self.spoilt["closed"] += 1
                    break
                if chance < 0.02 and self._lossy:
                    self.spoilt["lost"] += 1
                    data = data[: len(data) // 3] + data[len(data) // 2 :]
                elif chance < 0.05:
                    self.spoilt["delayed"] += 1
                    time.sleep(self._chance.uniform(0, 0.1))
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:  # at once and with an error, as from a router that has forgotten the connection
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()


@pytest.mark.parametrize("carrier", ["network", "encrypted"])
def test_a_proxy_that_cuts_delays_and_truncates_loses_and_doubles_nothing(
    carrier: str, tmp_path: Path
) -> None:
    (port,) = free_ports(1)
    proxy = Spoiler(("127.0.0.1", port), lossy=carrier == "encrypted")
    proxy.start()
    processes: list[Any] = [start(learn_durably, carrier, f"127.0.0.1:{port}", str(tmp_path))]
    processes += [start(act_durably, carrier, proxy.address, index, str(tmp_path)) for index in range(ACTORS)]
    try:
        eventually(lambda: proxy.spoilt["cut"] >= 10 and proxy.spoilt["closed"] >= 10, within=90)
        proxy.on = False
        (tmp_path / "finish").touch()
        for writer in processes[1:]:
            writer.join(40)
            assert writer.exitcode == 0
        processes[0].terminate()
        processes[0].join(10)
        assert processes[0].exitcode == 143
    finally:
        for process in processes:
            process.kill()
            process.join(10)
        proxy.close()
    check(tmp_path)
    print(proxy.spoilt)
