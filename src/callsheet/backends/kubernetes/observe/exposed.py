"""The addresses at which people reach what an experiment exposes, once the cluster has assigned them. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from callsheet.backends.kubernetes import names

Object = dict[str, Any]
_KINDS = {"NodePort": "Service", "LoadBalancer": "Service", "Ingress": "Ingress"}
"""The kind of object that gets the address; an endpoint for port-forwarding needs none."""
_ADDRESSES = ("ExternalIP", "ExternalDNS", "InternalIP", "Hostname")
"""Types of a node's addresses, the most widely reachable first."""


@dataclass
class Exposure:
    """What the cluster has to make endpoints reachable from outside."""

    objects: dict[tuple[str, str], Object] = field(default_factory=dict)
    """Services and Ingresses by kind and name."""
    nodes: dict[str, str] = field(default_factory=dict)
    """For each role whose Service has a port of every node: a node that answers there."""


def kinds(experiment: Mapping[str, Any]) -> set[str]:
    """The kinds of objects that have the addresses."""
    return {_KINDS[kind] for _, expose in _exposes(experiment) if (kind := _type(expose)) in _KINDS}


def on_nodes(experiment: Mapping[str, Any]) -> set[str]:
    """The roles that are reached through a port of every node."""
    return {role for role, expose in _exposes(experiment) if _type(expose) == "NodePort"}


def node_address(node: Object) -> str:
    """The node's most widely reachable address; empty if the cluster knows none."""
    known = {item["type"]: item["address"] for item in node["status"].get("addresses") or []}
    return next((known[kind] for kind in _ADDRESSES if kind in known), "")


def addresses(config_map: Object, experiment: Mapping[str, Any], exposure: Exposure) -> dict[str, str]:
    """The address of each exposed endpoint; empty while it has none.

    An endpoint for port-forwarding has the name of its Service, which is valid inside the cluster.
    """
    ports = json.loads(config_map["data"].get(names.ADDRESSES_FILE, "{}")).get("endpoints", {})
    result = {}
    for role, expose in _exposes(experiment):
        name, kind = expose["name"], _type(expose)
        if name not in ports:
            continue
        service, port = names.service(experiment["metadata"]["name"], name), ports[name]["port"]
        target = exposure.objects.get((_KINDS.get(kind, ""), service))
        if kind not in _KINDS:
            result[name] = f"{service}:{port}"
        elif target is None:
            result[name] = ""
        elif kind == "NodePort":
            node = exposure.nodes.get(role, "")
            outer = next(
                (p["nodePort"] for p in target["spec"].get("ports") or [] if p.get("nodePort")), None
            )
            result[name] = f"{_host(node)}:{outer}" if node and outer else ""
        else:
            given = _given(target)
            if kind == "LoadBalancer":
                result[name] = f"{_host(given)}:{port}" if given else ""
            else:
                result[name] = f"http://{expose.get('host') or _host(given)}/" if given else ""
    return result


def _exposes(experiment: Mapping[str, Any]) -> Iterator[tuple[str, Object]]:
    """Each exposed endpoint, with its role."""
    for role in experiment["spec"]["roles"]:
        for container in role.get("containers") or [role]:
            for expose in container.get("exposes") or []:
                yield role["name"], expose


def _type(expose: Object) -> str:
    return str(expose.get("type") or "PortForward")


def _given(target: Object) -> str:
    """What a load balancer or an Ingress controller wrote down."""
    given = ((target.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []
    return next((str(place.get("hostname") or place.get("ip") or "") for place in given), "")


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address
