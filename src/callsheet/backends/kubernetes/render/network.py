"""How the pods of an experiment are found and who may reach them: Services, exposure, NetworkPolicy."""

from __future__ import annotations

from typing import Any

from callsheet.backends.kubernetes import names
from callsheet.backends.kubernetes.render.environment import Wiring
from callsheet.metrics.targets import serves_metrics
from callsheet.spec.experiment import Expose, Role

Object = dict[str, Any]


def services(wiring: Wiring, run: str) -> list[Object]:
    """One headless Service for the replicas' names, and one Service for each endpoint."""
    headless = _service(wiring, run, wiring.name)
    headless["spec"] = {
        "clusterIP": "None",
        # A name must resolve before its pod is ready: start order is free.
        "publishNotReadyAddresses": True,
        "selector": names.selector(wiring.name),
    }
    exposed = {expose.name: expose for _, expose in _exposed(wiring)}
    made = [headless]
    for endpoint, role in wiring.binders.items():
        service = _service(wiring, run, names.service(wiring.name, endpoint))
        service["metadata"]["labels"][names.ENDPOINT] = endpoint
        port = wiring.ports[endpoint]
        service["spec"] = {
            "selector": names.selector(wiring.name, role.name),
            "ports": [{"name": endpoint, "port": port, "targetPort": port}],
        }
        kind = exposed[endpoint].type if endpoint in exposed else "PortForward"
        if kind in ("NodePort", "LoadBalancer"):
            service["spec"]["type"] = kind
        made.append(service)
    return made


def exposure(wiring: Wiring, run: str) -> list[Object]:
    """An Ingress for each endpoint that asks for one."""
    return [_ingress(wiring, run, expose) for _, expose in _exposed(wiring) if expose.type == "Ingress"]


def _exposed(wiring: Wiring) -> list[tuple[Role, Expose]]:
    return [
        (role, expose)
        for role in wiring.experiment.spec.roles
        for container in role.group
        for expose in container.exposes
    ]


def _service(wiring: Wiring, run: str, name: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": names.labels(wiring.name, run)},
    }


def _ingress(wiring: Wiring, run: str, expose: Expose) -> Object:
    name = names.service(wiring.name, expose.name)
    backend = {"service": {"name": name, "port": {"number": wiring.ports[expose.name]}}}
    rule: Object = {"http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": name, "labels": names.labels(wiring.name, run)},
        "spec": {"rules": [rule | ({"host": expose.host} if expose.host else {})]},
    }


def network_policy(wiring: Wiring, run: str) -> Object:
    """The experiment's pods reach each other; everyone in the namespace reaches what is exposed, and metrics."""
    ours = {"podSelector": {"matchLabels": names.selector(wiring.name)}}
    ingress: list[Object] = [{"from": [ours]}]
    inside = [e.name for _, e in _exposed(wiring) if e.type == "PortForward"]
    outside = [e.name for _, e in _exposed(wiring) if e.type != "PortForward"]
    inside += [name for name in wiring.binders if serves_metrics(name) and name not in (*inside, *outside)]
    if inside:
        ingress.append({"from": [{"podSelector": {}}], "ports": _ports(wiring, inside)})
    if outside:
        ingress.append({"ports": _ports(wiring, outside)})
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": wiring.name, "labels": names.labels(wiring.name, run)},
        "spec": {
            "podSelector": {"matchLabels": names.selector(wiring.name)},
            "policyTypes": ["Ingress"],
            "ingress": ingress,
        },
    }


def _ports(wiring: Wiring, endpoints: list[str]) -> list[Object]:
    return [{"protocol": "TCP", "port": wiring.ports[name]} for name in endpoints]
