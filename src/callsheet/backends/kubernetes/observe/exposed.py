"""Where people reach what an experiment exposes: the address that they can open, once the cluster has given one. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from callsheet.backends.kubernetes import names

Object = dict[str, Any]
_KINDS = {"NodePort": "Service", "LoadBalancer": "Service", "Ingress": "Ingress"}
"""What gets the address, by the type of the exposure; an endpoint for port-forwarding needs none."""
_ADDRESSES = ("ExternalIP", "ExternalDNS", "InternalIP", "Hostname")
"""A node's addresses, the one that most people reach first."""


@dataclass
class Exposure:
    """What the cluster holds for people outside of it."""

    objects: dict[tuple[str, str], Object] = field(default_factory=dict)
    """Services and Ingresses by kind and name."""
    nodes: dict[str, str] = field(default_factory=dict)
    """For each role whose Service has a port of every node: a node that answers there."""


def kinds(experiment: Mapping[str, Any]) -> set[str]:
    """Which objects must be looked at for the addresses."""
    return {_KINDS[kind] for _, expose in _exposes(experiment) if (kind := _type(expose)) in _KINDS}


def on_nodes(experiment: Mapping[str, Any]) -> set[str]:
    """The roles that are reached at a port of every node."""
    return {role for role, expose in _exposes(experiment) if _type(expose) == "NodePort"}


def node_address(node: Object) -> str:
    """The node's address for people outside the cluster, as far as the cluster knows one."""
    known = {found["type"]: found["address"] for found in node["status"].get("addresses") or []}
    return next((known[kind] for kind in _ADDRESSES if kind in known), "")


def addresses(config_map: Object, experiment: Mapping[str, Any], exposure: Exposure) -> dict[str, str]:
    """The address of each exposed endpoint; empty while it has none.

    What is only forwarded to people has the name of its Service, which is good inside the cluster.
    """
    ports = json.loads(config_map["data"].get(names.ADDRESSES_FILE, "{}")).get("endpoints", {})
    found = {}
    for role, expose in _exposes(experiment):
        name, kind = expose["name"], _type(expose)
        if name not in ports:
            continue
        service, port = names.service(experiment["metadata"]["name"], name), ports[name]["port"]
        target = exposure.objects.get((_KINDS.get(kind, ""), service))
        if kind not in _KINDS:
            found[name] = f"{service}:{port}"
        elif target is None:
            found[name] = ""
        elif kind == "NodePort":
            node = exposure.nodes.get(role, "")
            outer = next(
                (p["nodePort"] for p in target["spec"].get("ports") or [] if p.get("nodePort")), None
            )
            found[name] = f"{_host(node)}:{outer}" if node and outer else ""
        else:
            given = _given(target)
            if kind == "LoadBalancer":
                found[name] = f"{_host(given)}:{port}" if given else ""
            else:
                found[name] = f"http://{expose.get('host') or _host(given)}/" if given else ""
    return found


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
