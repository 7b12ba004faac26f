"""The newest metrics of a run's pods, read from the port of those that serve them.

Read through the API server, as `callsheet port-forward` does: no network policy blocks it, and it needs no further right.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from callsheet.backends.kubernetes import names
from callsheet.backends.kubernetes.apply import parallel
from callsheet.backends.kubernetes.client.api import Api
from callsheet.backends.kubernetes.client.port_forward import query_port
from callsheet.errors import CallsheetError
from callsheet.metrics.reader import REQUEST, ProcessMetrics, from_response, is_complete
from callsheet.metrics.targets import serves_metrics

MAX_PODS: Final = 100
"""Pods that are queried at once; a role with more than that left shows nothing, rather than a part of the truth."""
_TIMEOUT = 5.0


class PodMetrics:
    """Reads the pods of one run. If no role serves metrics, nothing is sent to the cluster."""

    def __init__(self, api: Api, experiment: str, run: str, endpoints: Mapping[str, tuple[str, int]]) -> None:
        self._api = api
        self._experiment = experiment
        self._run = run
        self._ports: dict[str, list[int]] = {}
        for name, (role, port) in endpoints.items():
            if serves_metrics(name):
                self._ports.setdefault(role, []).append(port)

    def read(self) -> list[ProcessMetrics]:
        """The newest metrics of every process that answers."""
        chosen: list[tuple[str, int]] = []
        for role, ports in self._ports.items():
            pods = [
                pod["metadata"]["name"]
                for pod in self._api.objects("Pod", names.labels(self._experiment, self._run, role))
                if pod["status"].get("phase") == "Running"
            ]
            places = [(pod, port) for pod in pods for port in ports]
            if len(chosen) + len(places) <= MAX_PODS:
                chosen += places
        return [answer for answer in parallel(self._query, chosen) if answer is not None]

    def _query(self, place: tuple[str, int]) -> ProcessMetrics | None:
        try:
            return from_response(query_port(self._api, *place, REQUEST, is_complete, _TIMEOUT))
        except (CallsheetError, TimeoutError):
            return None  # it may have ended, or not listen yet
