"""Enforces NetworkPolicies on one node: without, a policy is accepted and changes nothing, and no test can prove ours.

Runs on every node as `python -m tools.cluster.policy CLUSTER NODE`. It watches pods, namespaces and policies, and writes
the rules for the node's own pods into one table of nftables, replaced as a whole. Ingress alone: no policy of ours
speaks of egress. What the node itself sends, such as a kubelet's probe, is never forwarded and so always allowed.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tools.cluster import state
from tools.cluster.api import Api, Object
from tools.cluster.errors import ClusterError
from tools.cluster.shell import say
from tools.cluster.state import Cluster
from tools.cluster.units import Part
from tools.cluster.versions import HERE

TABLE = "ip networkpolicy"
PATHS = {
    "pods": "/api/v1/pods",
    "namespaces": "/api/v1/namespaces",
    "policies": "/apis/networking.k8s.io/v1/networkpolicies",
}
SETTLE_S = 0.05
"""What changes together is written together."""


def part(cluster: Cluster, node: str) -> Part:
    argv = [sys.executable, "-m", "tools.cluster.policy", cluster.name, node]
    return Part("policy", argv, needs=[str(cluster.ready_file)], env={"PYTHONPATH": str(HERE.parent.parent)})


@dataclass(frozen=True)
class Pod:
    """What a policy can ask about a pod."""

    namespace: str
    labels: Mapping[str, str]
    address: str
    node: str
    created: str = ""
    ports: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Number by protocol and name."""

    @staticmethod
    def of(found: Object) -> Pod | None:
        """None for one that has no address of its own, or none any more."""
        spec, status = found["spec"], found.get("status", {})
        if (
            spec.get("hostNetwork")
            or status.get("phase") in ("Succeeded", "Failed")
            or not status.get("podIP")
        ):
            return None
        containers = [*spec["containers"], *spec.get("initContainers", [])]
        ports = {
            (port.get("protocol", "TCP"), port["name"]): port["containerPort"]
            for container in containers
            for port in container.get("ports", [])
            if "name" in port
        }
        meta = found["metadata"]
        return Pod(
            namespace=meta["namespace"],
            labels=meta.get("labels", {}),
            address=status["podIP"],
            node=spec.get("nodeName", ""),
            created=meta["creationTimestamp"],
            ports=ports,
        )


def matches(selector: Object, labels: Mapping[str, str]) -> bool:
    """Whether a label selector chooses something with these labels; an empty one chooses everything."""
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items()) and all(
        _holds(each["operator"], labels.get(each["key"]), each.get("values", []))
        for each in selector.get("matchExpressions", [])
    )


def _holds(operator: str, value: str | None, values: list[str]) -> bool:
    return {
        "In": value in values,
        "NotIn": value not in values,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }[operator]


def rules(
    pods: Iterable[Pod], namespaces: Mapping[str, Mapping[str, str]], policies: Iterable[Object], node: str
) -> str:
    """The table for a node's own pods, as nft reads it: what is not allowed to a pod that a policy names is dropped."""
    # An address can be a new pod's already while the old one's end is not known yet: a map has each once.
    pods = list({pod.address: pod for pod in sorted(pods, key=lambda pod: pod.created)}.values())
    incoming = [p for p in policies if "Ingress" in p["spec"].get("policyTypes", ["Ingress"])]
    chains: list[str] = []
    verdicts: list[str] = []
    for number, pod in enumerate(each for each in pods if each.node == node):
        own = [
            policy["spec"]
            for policy in incoming
            if policy["metadata"]["namespace"] == pod.namespace
            and matches(policy["spec"]["podSelector"], pod.labels)
        ]
        if own:
            allowed = [
                f"    {source} {port} accept"
                for spec in own
                for rule in spec.get("ingress", [])
                for source in _sources(rule, pod.namespace, pods, namespaces)
                for port in _ports(rule, pod)
            ]
            chains.append("\n".join([f"  chain pod{number} {{", *allowed, "    drop", "  }"]))
            verdicts.append(f"{pod.address} : goto pod{number}")
    forward = ["  chain forward {", "    type filter hook forward priority filter; policy accept;"]
    if verdicts:
        forward += [
            "    ct state established,related accept",
            f"    ip daddr vmap {{ {', '.join(verdicts)} }}",
        ]
    body = "\n".join([*chains, *forward, "  }"])
    # Named first, so that there is something to delete: old and new are exchanged in one step.
    return f"table {TABLE}\ndelete table {TABLE}\ntable {TABLE} {{\n{body}\n}}\n"


def _sources(
    rule: Object, namespace: str, pods: Iterable[Pod], namespaces: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    """Who a rule lets in, as conditions of nft; an empty one is everybody."""
    if not rule.get("from"):
        yield ""
        return
    chosen: set[str] = set()
    for peer in rule["from"]:
        if block := peer.get("ipBlock"):
            but = f"ip saddr != {{ {', '.join(block['except'])} }}" if block.get("except") else ""
            yield f"ip saddr {block['cidr']} {but}"
            continue
        where = peer.get("namespaceSelector")
        for pod in pods:
            here = (
                pod.namespace == namespace
                if where is None
                else matches(where, namespaces.get(pod.namespace, {}))
            )
            if here and matches(peer.get("podSelector", {}), pod.labels):
                chosen.add(pod.address)
    if chosen:
        yield f"ip saddr {{ {', '.join(sorted(chosen))} }}"


def _ports(rule: Object, pod: Pod) -> Iterator[str]:
    """Which ports of a pod a rule opens, as conditions of nft; an empty one is all."""
    if not rule.get("ports"):
        yield ""
    for each in rule.get("ports") or ():
        protocol, port = each.get("protocol", "TCP"), each.get("port")
        if isinstance(port, str):
            port = pod.ports.get((protocol, port))
            if port is None:
                continue  # the pod has no port of that name
        if port is None:
            yield f"meta l4proto {protocol.lower()}"
        else:
            yield f"{protocol.lower()} dport {port}-{each.get('endPort', port)}"


class Mirror(threading.Thread):
    """Keeps a copy of all objects of one kind; who waits for news is woken by a change."""

    def __init__(self, cluster: Cluster, path: str, changed: threading.Event) -> None:
        super().__init__(daemon=True)
        self._api = Api(cluster)
        self._path = path
        self._changed = changed
        self._objects: dict[str, Object] = {}
        self.whole = False

    def objects(self) -> list[Object]:
        return list(self._objects.values())

    def run(self) -> None:
        while True:
            try:
                self._follow()
            except ClusterError as error:
                say(f"{time.strftime('%H:%M:%S')} {error}")  # the rules stay as they are
                time.sleep(1)

    def _follow(self) -> None:
        found = self._api.call("GET", self._path)
        self._objects = {each["metadata"]["uid"]: each for each in found["items"]}
        self.whole = True
        self._changed.set()
        for event in self._api.watch(self._path, found["metadata"]["resourceVersion"]):
            made = event["object"]
            if event["type"] == "ERROR":
                return  # too old: listed anew
            if event["type"] == "DELETED":
                self._objects.pop(made["metadata"]["uid"], None)
            elif event["type"] in ("ADDED", "MODIFIED"):
                self._objects[made["metadata"]["uid"]] = made
            self._changed.set()


def main() -> None:
    cluster, node = state.get(sys.argv[1]), sys.argv[2]
    changed = threading.Event()
    mirrors = {kind: Mirror(cluster, path, changed) for kind, path in PATHS.items()}
    for mirror in mirrors.values():
        mirror.start()
    before = ""
    while True:
        changed.wait()
        time.sleep(SETTLE_S)
        changed.clear()
        if not all(mirror.whole for mirror in mirrors.values()):
            continue
        pods = [pod for found in mirrors["pods"].objects() if (pod := Pod.of(found))]
        namespaces = {
            found["metadata"]["name"]: found["metadata"].get("labels", {})
            for found in mirrors["namespaces"].objects()
        }
        table = rules(pods, namespaces, mirrors["policies"].objects(), node)
        if table != before:
            # A table that nft refuses ends the program: it is started again, and its log says why.
            subprocess.run(["nft", "-f", "-"], input=table, text=True, check=True)
            before = table


if __name__ == "__main__":
    main()
