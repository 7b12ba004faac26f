"""A real S3 server to be hurt: SeaweedFS on loopback, with a folder, ports and keys of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sysconfig
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from callsheet.errors import CallsheetError
from callsheet.store import open_store
from tools.faults.waiting import eventually, free_ports

WEED = Path(sysconfig.get_path("scripts")) / "weed"
BUCKET = "results"
SECRET = "no-log-may-show-this-7f3a"  # noqa: S105 - of a server that lives as long as a test
_PARTS = ("master", "volume", "filer", "s3")


class S3Server:
    """Starts, is killed and starts again at the same address with the same data."""

    def __init__(self, folder: Path, address: str = "127.0.0.1", enter: Sequence[str] = ()) -> None:
        """`enter` begins a command that runs where this address is, in another network."""
        self.folder = folder
        self._address = address
        self._enter = list(enter)
        self._process: subprocess.Popen[bytes] | None = None
        (folder / "data").mkdir(parents=True)
        identities = [
            {
                "name": name,
                "credentials": [{"accessKey": name, "secretKey": SECRET}],
                "actions": actions,
            }
            for name, actions in (
                ("user", ["Read", "Write", "List"]),
                ("reader", ["Read", "List"]),
            )
        ]
        (folder / "s3.json").write_text(json.dumps({"identities": identities}))
        self._ports = free_ports(2 * len(_PARTS))

    @property
    def endpoint(self) -> str:
        return f"http://{self._address}:{self._ports[-2]}"

    def environment(self, who: str = "user") -> dict[str, str]:
        """The variables that lead a program here."""
        return {
            "AWS_ACCESS_KEY_ID": who,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": "us-east-1",
        }

    def start(self) -> None:
        """Start it; it answers a few seconds later."""
        ports = {
            option: port
            for part, pair in zip(_PARTS, zip(self._ports[::2], self._ports[1::2], strict=True), strict=True)
            for option, port in zip((f"{part}.port", f"{part}.port.grpc"), pair, strict=True)
        }
        options = {
            "dir": self.folder / "data",
            "ip": self._address,
            "ip.bind": self._address,
            "filer": "true",
            "s3": "true",
            "s3.config": self.folder / "s3.json",
            "s3.autoCreateBucket": "false",
            "s3.port.iceberg": 0,
            "s3.port.lance": 0,
            "master.telemetry": "false",
            "master.electionTimeout": "1s",
            "master.volumeSizeLimitMB": 64,
            "volume.max": 0,
            **ports,
        }
        with open(self.folder / "server.log", "ab") as log:
            self._process = subprocess.Popen(
                [
                    *self._enter,
                    WEED,
                    "-logtostderr=true",
                    "server",
                    *(f"-{name}={value}" for name, value in options.items()),
                ],
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        """kill -9, as the machine would at a power cut. (On SIGTERM it takes its time.)"""
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """It keeps its connections and answers nothing."""
        assert self._process
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process
        self._process.send_signal(signal.SIGCONT)

    def wait_until_ready(self) -> None:
        """Until it has the bucket and takes an object."""
        with variables(self.environment()):
            store = open_store(f"s3://{BUCKET}", patience=5.0)

        def takes_one() -> bool:
            with contextlib.suppress(OSError):  # it may be there already
                self.make_bucket(BUCKET)
            try:
                return bool(store.put("ready", b""))
            except CallsheetError:
                return False

        eventually(takes_one, within=120.0)

    def make_bucket(self, name: str) -> None:
        self._ask_filer("POST", f"{name}/")

    def remove_bucket(self, name: str) -> None:
        self._ask_filer("DELETE", f"{name}?recursive=true")

    def _ask_filer(self, method: str, path: str) -> None:
        """Buckets are folders to the part of the server behind S3, which asks for no keys."""
        url = f"http://{self._address}:{self._ports[2 * _PARTS.index('filer')]}/buckets/{path}"
        urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=10).close()

    def remove(self) -> None:
        self.kill()
        for port in self._ports:
            for left in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):  # noqa: S108 - its own choice of a place
                left.unlink()


@contextlib.contextmanager
def variables(values: Mapping[str, str]) -> Iterator[None]:
    """These are set in the block."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def serving(folder: Path, address: str = "127.0.0.1", enter: Sequence[str] = ()) -> Iterator[S3Server]:
    """A server that is ready, and gone afterwards."""
    server = S3Server(folder, address, enter)
    try:
        server.start()
        server.wait_until_ready()
        yield server
    finally:
        server.remove()
