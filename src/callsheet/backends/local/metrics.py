"""The newest metrics of a local run's processes: from its folder, or from their ports.

With a cloud storage, the processes write there, and the folder has none.
"""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor

from callsheet.backends.local.supervisor.files import Layout
from callsheet.metrics.reader import FolderReader, ProcessMetrics, fetch
from callsheet.metrics.targets import serves_metrics

_AT_ONCE = 16


class LocalMetrics:
    """Reads metrics repeatedly; each read costs only what has changed."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._reader = FolderReader(layout.folder)
        self._read = 0
        """When the address book that was read last had been written."""
        self._ports: list[str] = []

    def read(self) -> list[ProcessMetrics]:
        """The newest metrics of every process that exports some."""
        processes = self._reader.read()
        if processes or not os.path.exists(self._layout.socket):
            return processes
        self._find_ports()
        if not self._ports:
            return []
        with ThreadPoolExecutor(min(_AT_ONCE, len(self._ports))) as pool:
            answers = list(pool.map(fetch, self._ports))
        return [answer for answer in answers if answer is not None]

    def _find_ports(self) -> None:
        try:
            written = os.stat(self._layout.addresses).st_mtime_ns
            if written == self._read:
                return
            with open(self._layout.addresses, encoding="utf-8") as file:
                endpoints = json.load(file)["endpoints"]
        except (OSError, ValueError, KeyError):
            return
        self._read = written
        self._ports = [
            address
            for name, endpoint in endpoints.items()
            if serves_metrics(name)
            for address in endpoint["addresses"]
        ]
