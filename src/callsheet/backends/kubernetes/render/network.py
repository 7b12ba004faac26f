"""How the pods of an experiment are found and who may reach them: Services, exposure, NetworkPolicy."""

from __future__ import annotations

from typing import Any

from callsheet.backends.kubernetes import names
from callsheet.metrics.targets import serves_metrics
from callsheet.plan.model import Plan
from callsheet.spec.experiment import Experiment, Expose

Object = dict[str, Any]


def services(experiment: Experiment, plan: Plan) -> list[Object]:
    """One headless Service for the replicas' names, and one Service for each endpoint."""
    headless = _service(plan, plan.experiment)
    headless["spec"] = {
        "clusterIP": "None",
        # A name must resolve before its pod is ready: start order is free.
        "publishNotReadyAddresses": True,
        "selector": names.selector(plan.experiment),
    }
    types = {expose.name: expose.type for expose in _exposed(experiment)}
    made = [headless]
    for name, endpoint in plan.address_book["endpoints"].items():
        service = _service(plan, names.service(plan.experiment, name))
        service["metadata"]["labels"][names.ENDPOINT] = name
        port = endpoint["port"]
        service["spec"] = {
            "selector": names.selector(plan.experiment, endpoint["role"]),
            "ports": [{"name": name, "port": port, "targetPort": port}],
        }
        if types.get(name) in ("NodePort", "LoadBalancer"):
            service["spec"]["type"] = types[name]
        made.append(service)
    return made


def ingresses(experiment: Experiment, plan: Plan) -> list[Object]:
    """An Ingress for each endpoint that asks for one."""
    return [_ingress(plan, expose) for expose in _exposed(experiment) if expose.type == "Ingress"]


def _exposed(experiment: Experiment) -> list[Expose]:
    return [expose for role in experiment.spec.roles for c in role.group for expose in c.exposes]


def _service(plan: Plan, name: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": names.labels(plan.experiment, plan.run)},
    }


def _ingress(plan: Plan, expose: Expose) -> Object:
    name = names.service(plan.experiment, expose.name)
    backend = {"service": {"name": name, "port": {"number": _port(plan, expose.name)}}}
    rule: Object = {"http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": name, "labels": names.labels(plan.experiment, plan.run)},
        "spec": {"rules": [rule | ({"host": expose.host} if expose.host else {})]},
    }


def network_policy(experiment: Experiment, plan: Plan) -> Object:
    """The experiment's pods reach each other; everyone in the namespace reaches what is exposed, and metrics."""
    ours = {"podSelector": {"matchLabels": names.selector(plan.experiment)}}
    ingress: list[Object] = [{"from": [ours]}]
    inside = [e.name for e in _exposed(experiment) if e.type == "PortForward"]
    outside = [e.name for e in _exposed(experiment) if e.type != "PortForward"]
    endpoints = plan.address_book["endpoints"]
    inside += [name for name in endpoints if serves_metrics(name) and name not in (*inside, *outside)]
    if inside:
        ingress.append({"from": [{"podSelector": {}}], "ports": _open(plan, inside)})
    if outside:
        ingress.append({"ports": _open(plan, outside)})
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": plan.experiment, "labels": names.labels(plan.experiment, plan.run)},
        "spec": {
            "podSelector": {"matchLabels": names.selector(plan.experiment)},
            "policyTypes": ["Ingress"],
            "ingress": ingress,
        },
    }


def _open(plan: Plan, endpoints: list[str]) -> list[Object]:
    return [{"protocol": "TCP", "port": _port(plan, name)} for name in endpoints]


def _port(plan: Plan, endpoint: str) -> int:
    port: int = plan.address_book["endpoints"][endpoint]["port"]
    return port
