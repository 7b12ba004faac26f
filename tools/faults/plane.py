"""A small data plane of real processes that are started again when they end, as a supervisor does."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from callsheet import contract
from tools.faults.beats import Beat
from tools.faults.programs import Member
from tools.faults.proxy import PASS, Script, TcpProxy
from tools.faults.waiting import eventually, free_address

ROOT = Path(__file__).resolve().parent.parent.parent
SERVES = {
    "replay": ("replay",),
    "parameters": ("parameters",),
    "policy": ("policy",),
    "learner": ("trajectories", "evaluations"),
    "evaluator": (),
    "actor": (),
}
"""The endpoints that each role binds."""
_LAST = ("evaluator", "policy", "parameters", "learner", "replay")
"""The order in which the plane ends, after the actors: whoever takes something outlives those who give it."""
_ENDED = (contract.EXIT_OK, contract.EXIT_STOPPED)


@dataclass
class End:
    """How a process ended."""

    name: str
    code: int
    said: str


@dataclass
class Running:
    """A member and its process."""

    member: Member
    env: Mapping[str, str]
    process: subprocess.Popen[bytes]
    held: bool = False
    """Whether nobody starts it again for now."""


@dataclass
class Plane:
    """Its members by name, such as `replay-0`. Everything it writes is below `folder`."""

    folder: Path
    seed: int = 0
    storage: str = ""
    env: dict[str, str] = field(default_factory=dict)
    """For all members."""

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.storage = self.storage or str(self.folder / "storage")
        self.members: dict[str, Running] = {}
        self.proxies: dict[tuple[str, str], TcpProxy] = {}
        """By the member that connects and the endpoint."""
        self.ends: list[End] = []
        self._places: dict[str, str] = {}
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._finishing = False
        self._keeper = threading.Thread(target=self._keep, name="faults-keeper", daemon=True)
        self._keeper.start()

    def place(self, endpoint: str) -> str:
        """Where an endpoint is bound."""
        if endpoint not in self._places:
            self._places[endpoint] = free_address()
        return self._places[endpoint]

    def add(
        self,
        role: str,
        index: int = 0,
        *,
        connects: tuple[str, ...] = (),
        binds: tuple[str, ...] | None = None,
        via: bool = False,
        env: Mapping[str, str] | None = None,
        **options: Any,
    ) -> str:
        """Start a member; its name. With `via` its connections go through proxies of its own."""
        name = f"{role}-{index}"
        addresses = {endpoint: self.place(endpoint) for endpoint in binds or SERVES[role]}
        for endpoint in connects:
            addresses[endpoint] = self.place(endpoint)
            if via:
                proxy = self.proxies[name, endpoint] = TcpProxy(self.place(endpoint), self.seed)
                addresses[endpoint] = proxy.address
        if via:
            options.setdefault("kind", "encrypted")
        options.setdefault("storage", self.storage)
        member = Member(role, index, str(self.folder), addresses, **options)
        self._begin(member, dict(env or {}))
        return name

    def _begin(self, member: Member, env: Mapping[str, str], name: str = "") -> Running:
        with self._lock:
            found = Running(member, env, self._process(member, env))
            self.members[name or member.name] = found
            return found

    def _process(self, member: Member, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tools.faults.programs", msgspec.json.encode(member).decode()]
        with (self.folder / f"log-{member.name}").open("ab") as log:
            return subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, **self.env, **env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _keep(self) -> None:
        while not self._over.wait(0.05):
            with self._lock:
                for one in self.members.values():
                    code = one.process.poll()
                    if code is None or one.held:
                        continue
                    self.ends.append(End(one.member.name, code, self.said(one.member.name)))
                    if code == 0 or (code == contract.EXIT_STOPPED and self._finishing):
                        one.held = True
                    else:
                        one.process = self._process(one.member, one.env)

    def said(self, name: str) -> str:
        """The last line of a member's output."""
        lines = self.output(name).splitlines()
        return lines[-1] if lines else ""

    def output(self, name: str) -> str:
        """All that a member has printed."""
        return (self.folder / f"log-{name}").read_text(errors="replace")

    def pid(self, name: str) -> int:
        """The process of a member."""
        return self.members[name].process.pid

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to a member."""
        with self._lock, contextlib.suppress(ProcessLookupError):
            os.kill(self.pid(name), number)

    def replace(self, name: str, **options: Any) -> None:
        """Start a member again with other options or another environment, after it was killed."""
        with self._lock:
            one = self.members[name]
            env = {**one.env, **options.pop("env", {})}
            one.held = True
            one.process.kill()
            one.process.wait()
            self._begin(msgspec.structs.replace(one.member, **options), env, name)

    def succeed(self, name: str) -> subprocess.Popen[bytes]:
        """Start a successor beside a member that lives on, somewhere else, and send its clients there; the old
        process."""
        with self._lock:
            old = self.members[name]
            addresses = dict(old.member.addresses)
            for endpoint in SERVES[old.member.role]:
                if endpoint in addresses:
                    addresses[endpoint] = self._places[endpoint] = free_address()
                    for (_, other), proxy in self.proxies.items():
                        if other == endpoint:
                            proxy.reset(addresses[endpoint])
            self._begin(msgspec.structs.replace(old.member, addresses=addresses), old.env, name)
            return old.process

    def proxies_of(self, name: str) -> list[TcpProxy]:
        """Through which a member speaks: its own, or those of all who speak to it."""
        serves = SERVES[self.members[name].member.role]
        return [proxy for (who, what), proxy in self.proxies.items() if who == name or what in serves]

    def follow(self, name: str, script: Script = PASS) -> None:
        """What happens to a member's connections from now on."""
        for proxy in self.proxies_of(name):
            proxy.follow(script)

    def beat(self, service: str, name: str) -> Beat:
        """How a service is seen by a member."""
        return Beat(self.folder, f"{service}-{name}")

    def check_nothing_wrong(self) -> None:
        """Fail with what a member has complained about."""
        wrong = self.folder / "wrong"
        if wrong.exists():
            raise AssertionError(wrong.read_text())

    def finish(self, patience: float = 120.0) -> None:
        """Let the writers come to an end, then everybody else."""
        self._finishing = True
        (self.folder / "finish").touch()
        groups = [[name for name in self.members if name.startswith("actor")]]
        groups += [[name for name in self.members if name.startswith(role)] for role in _LAST]
        for number, names in enumerate(groups):
            if number:
                for name in names:
                    self.kill(name, signal.SIGTERM)
            for name in names:
                eventually(
                    lambda name=name: self.members[name].process.poll() in _ENDED,  # type: ignore[misc]
                    patience,
                    f"{name} does not end: {self.said(name)}",
                )

    def close(self) -> None:
        """Kill what is left."""
        self._over.set()
        self._keeper.join()
        for one in self.members.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(one.process.pid, signal.SIGKILL)
            one.process.wait()
        for proxy in self.proxies.values():
            proxy.close()


@contextlib.contextmanager
def plane(folder: Path, **options: Any) -> Iterator[Plane]:
    """A plane of which nothing is left afterwards."""
    made = Plane(folder, **options)
    try:
        yield made
    finally:
        made.close()


def moves(beat: Beat, by: int = 20, within: float = 60.0) -> float:
    """Wait until a service has made some progress; how long that took."""
    begun, before = time.monotonic(), beat.count
    eventually(lambda: beat.count >= before + by, within, f"{beat.count - before} of {by}")
    return time.monotonic() - begun
