"""The cables of a cluster: one switch, one cable per node, one cable to the machine that hosts it.

The switch is a bridge in the control plane's own network namespace. The host gets one interface and one address on
it (`callsheetK`, 10.200.K.254), so that the API server and node ports can be reached; it forwards nothing, its rules
and settings stay as they were. The namespaces have no name: when a unit dies its end of the cable goes, and so does
the other end.

    10.200.K.1        control plane: API server, registry
    10.200.K.10+i     node-i
    10.200.K.254      the host
    10.244.i.0/24     pods of node-i    (the same in every cluster: it is never seen outside)
    10.96.0.0/16      services
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterable
from pathlib import Path

from tools.cluster import state
from tools.cluster.errors import ClusterError
from tools.cluster.shell import run
from tools.cluster.state import MAX_NODES, Cluster, node_number

POD_NETWORK = "10.244.0.0/16"
SERVICE_NETWORK = "10.96.0.0/16"
KUBERNETES_SERVICE = "10.96.0.1"
DNS_SERVICE = "10.96.0.10"
BRIDGE = "switch"
HOST_END = "host"


def host_interface(number: int) -> str:
    return f"callsheet{number}"


def pod_subnet(node: str) -> str:
    return f"10.244.{node_number(node)}.0/24"


def numbers_in_use() -> set[int]:
    return {cluster.number for name in state.known() if (cluster := state.find(name))}


def free_number() -> int:
    """The first number whose addresses neither another cluster nor the host uses."""
    taken = numbers_in_use()
    routes = json.loads(run(["ip", "-j", "-4", "route", "show", "table", "all"]) or "[]")
    used = [ipaddress.ip_network(dst, strict=False) for dst in _destinations(routes)]
    for number in range(250):
        ours = ipaddress.ip_network(f"10.200.{number}.0/24")
        if number not in taken and not any(ours.overlaps(network) for network in used):
            return number
    raise ClusterError(
        "every network 10.200.K.0/24 is in use on this machine", "take down a cluster that is not needed"
    )


def _destinations(routes: Iterable[dict[str, object]]) -> Iterable[str]:
    for route in routes:
        destination = str(route.get("dst", "default"))
        # A wide route (a VPN's 10.0.0.0/8) leaves room for a narrower one; only close neighbors are in the way.
        if destination != "default" and int(destination.partition("/")[2] or 32) > 16:
            yield destination


def inside(pid: int) -> list[str]:
    """The words that run a program in a unit's network, and in nothing else of it."""
    return ["nsenter", f"--net=/proc/{pid}/ns/net"]


def _ip(lines: Iterable[str], pid: int | None = None) -> None:
    prefix = inside(pid) if pid else []
    run([*prefix, "ip", "-batch", "-"], stdin="\n".join(lines) + "\n")


def _hardware_address(cluster: Cluster, last: int) -> str:
    return f"02:00:0a:c8:{cluster.number:02x}:{last:02x}"


def connect_control(cluster: Cluster, control: int) -> None:
    """Set up the switch and plug the host into it.

    A bridge without an address of its own borrows the lowest of its ports'. When just that cable goes, the address
    changes, and for as long as they remember the old one nobody reaches the API server: a fault of one node would
    look like a fault of all.
    """
    link = host_interface(cluster.number)
    _ip(
        [
            f"link add {link} type veth peer name {HOST_END} netns {control}",
            f"addr add {cluster.address(254)}/24 dev {link}",
            f"link set {link} up",
        ]
    )
    _ip(
        [
            "link set lo up",
            f"link add {BRIDGE} address {_hardware_address(cluster, 1)} type bridge forward_delay 0",
            f"addr add {cluster.api_host}/24 dev {BRIDGE}",
            f"link set {BRIDGE} up",
            f"link set {HOST_END} master {BRIDGE}",
            f"link set {HOST_END} up",
        ],
        control,
    )


def connect_node(cluster: Cluster, control: int, node: str, pid: int) -> None:
    """Plug a node into the switch. A fixed hardware address keeps the others' memory of it true after a restart."""
    number = node_number(node)
    mac = _hardware_address(cluster, 10 + number)
    # The cable of a node that has just died goes a moment after it.
    run([*inside(control), "ip", "link", "del", node], check=False)
    _ip(
        [
            f"link add {node} type veth peer name eth0 address {mac} netns {pid}",
            f"link set {node} master {BRIDGE}",
            f"link set {node} up",
        ],
        control,
    )
    # A node is born knowing the way to every node that may ever join: adding one changes none of the others.
    others = (
        f"route add 10.244.{i}.0/24 via {cluster.address(10 + i)}" for i in range(MAX_NODES) if i != number
    )
    _ip(
        [
            "link set lo up",
            f"addr add {cluster.node_address(node)}/24 dev eth0",
            "link set eth0 up",
            # There is nothing beyond the switch, and a program that looks for it should learn so at once.
            "route add unreachable default",
            *others,
        ],
        pid,
    )


def unplug(control: int, node: str) -> None:
    """The node keeps running, and nobody hears of it."""
    _ip([f"link set {node} nomaster"], control)


def plug(control: int, node: str) -> None:
    _ip([f"link set {node} master {BRIDGE}"], control)


def is_unplugged(control: int, node: str) -> bool:
    links = json.loads(run([*inside(control), "ip", "-j", "link", "show", "dev", node], check=False) or "[]")
    return bool(links) and "master" not in links[0]


def remove_host_interfaces(keep: Iterable[int]) -> None:
    """Remove the host's ends of all cables but those of the clusters named by their numbers.

    The kernel removes them with the switch, but a connection that was cut off can keep a dead switch for a minute.
    """
    kept = {host_interface(number) for number in keep}
    for link in Path("/sys/class/net").glob(f"{host_interface(0)[:-1]}[0-9]*"):
        if link.name not in kept:
            run(["ip", "link", "del", link.name], check=False)
