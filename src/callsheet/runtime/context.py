"""Who this process is and where its peers are: read from the environment, or passed in to try a program by hand."""

from __future__ import annotations

import json
import logging
import os
import random
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

from callsheet import contract
from callsheet.errors import UserError
from callsheet.runtime import limits
from callsheet.runtime.data_plane_metrics import DataPlaneMetrics
from callsheet.runtime.keys import Keys
from callsheet.runtime.link.sockets import SocketFactory
from callsheet.runtime.stop import Stop, Stopping

if TYPE_CHECKING:
    from callsheet.metrics import Registry

log = logging.getLogger("callsheet.runtime")


def new_incarnation() -> int:
    """A number for one incarnation of a process or server; later ones are larger, as far as clocks agree."""
    return (time.time_ns() // 1000 << 10 | random.getrandbits(10)) & ((1 << 63) - 1)


class Closeable:
    """Something to use as a context manager: leaving the block calls `close`."""

    def close(self) -> None:
        """Release what it holds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Context:
    """A process of an experiment. Use it as a context manager: on SIGTERM, waits raise `Stopping`, and leaving the block
    exits with 143, because interrupted work is not finished work. Call `done` when it is.

    ``Context.from_env()`` inside an experiment; outside, say where things are::

        Context(addresses={"trajectories": "127.0.0.1:5000"}, plaintext=True)
    """

    def __init__(
        self,
        *,
        experiment: str = "by-hand",
        run: str = "by-hand",
        role: str = "process",
        index: int = 0,
        container: str = "",
        replicas: int = 1,
        attempt: int = 0,
        storage: str = "",
        keys: Keys | None = None,
        addresses: Mapping[str, str] | None = None,
        plaintext: bool = False,
        memory: bool = True,
    ) -> None:
        if keys is None and not plaintext:
            raise UserError(
                "there is no key to encrypt with",
                fix="pass keys=Keys.load(folder), or plaintext=True on a network you trust",
            )
        self.experiment = experiment
        self.run = run
        self.role = role
        self.index = limits.integer("index", index, 0)
        self.container = container or role
        self.replicas = limits.integer("replicas", replicas, 1)
        self.attempt = limits.integer("attempt", attempt, 0)
        self.storage = storage
        """Where to write results, as a URL; empty if the experiment has no storage."""
        self.keys = None if plaintext else keys
        self.memory = memory
        """Whether peers on the same machine may share memory."""
        self.incarnation = new_incarnation()
        """Differs for each start of the process; larger for later starts, as far as clocks agree."""
        self.stop = Stop()
        self._done = False
        self.sockets = SocketFactory(self.keys)
        self.data_plane_metrics = DataPlaneMetrics()
        self._addresses = dict(addresses or {})
        self._environ: Mapping[str, str] = {}
        self._addresses_file = ""
        self._links: dict[tuple[str, str], int] = {}
        self._at_close: list[Callable[[], None]] = []

    @staticmethod
    def from_env(environ: Mapping[str, str] | None = None) -> Context:
        """The context of a process that an experiment started."""
        env = os.environ if environ is None else environ
        missing = [
            name
            for name in (contract.EXPERIMENT, contract.RUN, contract.ROLE, contract.INDEX)
            if name not in env
        ]
        if missing:
            raise UserError(
                f"{missing[0]} is not set: this process was not started by an experiment",
                fix="start it with `callsheet run`, or create a Context with addresses to try it by hand",
            )
        plaintext = env.get(contract.ENCRYPTION) == contract.ENCRYPTION_OFF
        context = Context(
            experiment=env[contract.EXPERIMENT],
            run=env[contract.RUN],
            role=env[contract.ROLE],
            index=int(env[contract.INDEX]),
            container=env.get(contract.CONTAINER, ""),
            replicas=int(env.get(contract.REPLICAS, "1")),
            attempt=int(env.get(contract.ATTEMPT, "0")),
            storage=env.get(contract.STORAGE, ""),
            keys=None if plaintext else Keys.load(env.get(contract.KEYS, "")),
            plaintext=plaintext,
        )
        context._environ = env
        context._addresses_file = env.get(contract.ADDRESSES, "")
        return context

    @property
    def name(self) -> str:
        """As on the command line: role/index/container."""
        return f"{self.role}/{self.index}/{self.container}"

    def link_name(self, endpoint: str, address: str) -> str:
        """A name for another link to a listener: stable across restarts, unique within the process."""
        number = self._links[endpoint, address] = self._links.get((endpoint, address), 0) + 1
        return self.name if number == 1 else f"{self.name}#{number}"

    @property
    def metrics(self) -> Registry:
        """The metrics of this process. Your own metrics made here are exported too."""
        return self.data_plane_metrics.registry

    @property
    def stopping(self) -> bool:
        """Whether the process was asked to stop."""
        return self.stop.wanted

    def done(self) -> None:
        """Say that the work is done: if the process is asked to stop from now on, it still ends with 0."""
        self._done = True

    def sleep(self, seconds: float) -> None:
        """Sleep until the time is up or the process is asked to stop."""
        limits.seconds(
            "the time to sleep", seconds, endless="float('inf') to sleep until the process is asked to stop"
        )
        self.stop.sleep(seconds)

    def bind(self, endpoint: str) -> str:
        """The address to bind for an endpoint."""
        return self._find(endpoint, contract.ENDPOINT_BIND, "binds")

    def address(self, endpoint: str) -> str:
        """The address to connect to for an endpoint."""
        return self._find(endpoint, contract.ENDPOINT_ADDR, "connects to")

    def all(self, endpoint: str) -> list[str]:
        """The current addresses of all replicas that bind an endpoint; reflects scaling."""
        if endpoint in self._addresses:
            return self._addresses[endpoint].split(",")
        addresses = self._read_addresses().get(endpoint)
        if addresses:
            return addresses
        return self._find(endpoint, contract.ENDPOINT_ALL, "connects to").split(",")

    def _find(self, endpoint: str, word: str, verb: str) -> str:
        if endpoint in self._addresses:
            return self._addresses[endpoint]
        variable = contract.endpoint_variable(endpoint, word)
        if variable in self._environ:
            return self._environ[variable]
        known = ", ".join(sorted(self._addresses)) or "none"
        if self._environ:
            raise UserError(
                f"{self.name} has no endpoint {endpoint!r}: {variable} is not set",
                fix=f"declare in the experiment file that role {self.role} {verb} {endpoint}",
            )
        raise UserError(
            f"no address is given for endpoint {endpoint!r}", fix=f"addresses={{...}} has: {known}"
        )

    def _read_addresses(self) -> dict[str, list[str]]:
        if not self._addresses_file:
            return {}
        try:
            with open(self._addresses_file, encoding="utf-8") as file:
                endpoints = json.load(file)["endpoints"]
                return {name: list(context["addresses"]) for name, context in endpoints.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}  # it is being replaced right now; the environment's list will do

    def __enter__(self) -> Context:
        if threading.current_thread() is threading.main_thread():
            self.stop.install_handlers()
        if self._environ:
            self.data_plane_metrics.start(self._environ)
            self._at_close.insert(
                0, self.data_plane_metrics.close
            )  # closed last, so that it covers everything else
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self.close()
        if kind is not None and not issubclass(kind, Stopping):
            return False
        if self.stop.signal is not None and not self._done:
            raise SystemExit(128 + self.stop.signal) from None
        return True

    def at_close(self, close: Callable[[], None]) -> None:
        """Call `close` before the sockets are closed, for something that uses them in its own thread."""
        self._at_close.append(close)

    def close(self) -> None:
        """Close everything that is open."""
        while self._at_close:
            self._at_close.pop()()
        self.sockets.close()
        self.stop.close()
