"""The newest metrics of a run's pods, asked at the port of those that serve them.

Through the same door as `callsheet port-forward`: no network policy stands in its way, and no further right is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from callsheet.backends.kubernetes import names
from callsheet.backends.kubernetes.apply import parallel
from callsheet.backends.kubernetes.client.api import Api
from callsheet.backends.kubernetes.client.port_forward import ask
from callsheet.errors import CallsheetError
from callsheet.metrics.reader import REQUEST, ProcessMetrics, from_response, is_whole
from callsheet.metrics.targets import serves_metrics

MOST: Final = 100
"""Pods that are asked in one look; a role with more than that left shows nothing, rather than a part of the truth."""
_PATIENCE = 5.0


class PodMetrics:
    """Looks at the pods of one run. Where no role serves metrics the cluster is asked nothing."""

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
            asked = [(pod, port) for pod in pods for port in ports]
            if len(chosen) + len(asked) <= MOST:
                chosen += asked
        return [answer for answer in parallel(self._ask, chosen) if answer is not None]

    def _ask(self, place: tuple[str, int]) -> ProcessMetrics | None:
        pod, port = place
        try:
            return from_response(ask(self._api, pod, port, REQUEST, is_whole, _PATIENCE))
        except (CallsheetError, TimeoutError):
            return None  # it may have ended, or not yet begun to listen
