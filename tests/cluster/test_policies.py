"""The rules that stand for a NetworkPolicy on a node, each accepted by nft itself."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
from conftest import need_root

from tools.cluster.policy import Pod, matches, rules

NAMESPACES = {"here": {"team": "rl"}, "there": {"team": "web"}}
SERVER = Pod("here", {"app": "server"}, "10.244.0.2", "node-0", ports={("TCP", "http"): 8080})
FRIEND = Pod("here", {"app": "friend", "tier": "gold"}, "10.244.1.3", "node-1")
FAR_FRIEND = Pod("there", {"app": "friend"}, "10.244.0.4", "node-0")
PODS = [SERVER, FRIEND, FAR_FRIEND]


def policy(*ingress: Any, **spec: Any) -> dict[str, Any]:
    own = {"podSelector": {"matchLabels": {"app": "server"}}, "ingress": list(ingress)}
    return {"metadata": {"namespace": "here"}, "spec": own | spec}


def allowed(*policies: Any, node: str = "node-0") -> list[str] | None:
    """The conditions under which the server's pod is reached; None when anybody reaches it."""
    table = rules(PODS, NAMESPACES, policies, node)
    subprocess.run(
        ["unshare", "--net", "nft", "-f", "-"], input=table * 2, text=True, check=True, timeout=30
    )  # twice: what is there is replaced
    if "chain pod" not in table:
        return None
    inside = table.partition("chain pod0 {\n")[2].partition("drop\n")[0]
    return [" ".join(line.split()[:-1]) for line in inside.splitlines() if line.strip()]


@pytest.fixture(autouse=True)
def root() -> None:
    need_root()


@pytest.mark.parametrize(
    ("ingress", "conditions"),
    [
        pytest.param([], [], id="nobody"),
        pytest.param([{}], [""], id="everybody"),
        pytest.param(
            [{"from": [{"podSelector": {}}]}], ["ip saddr { 10.244.0.2, 10.244.1.3 }"], id="namespace"
        ),
        pytest.param(
            [{"from": [{"namespaceSelector": {"matchLabels": {"team": "web"}}}]}],
            ["ip saddr { 10.244.0.4 }"],
            id="another namespace",
        ),
        pytest.param(
            [{"from": [{"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "friend"}}}]}],
            ["ip saddr { 10.244.0.4, 10.244.1.3 }"],
            id="both selectors",
        ),
        pytest.param([{"from": [{"podSelector": {"matchLabels": {"app": "none"}}}]}], [], id="nobody fits"),
        pytest.param(
            [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.244.0.0/16"]}}]}],
            ["ip saddr 10.0.0.0/8 ip saddr != { 10.244.0.0/16 }"],
            id="a block",
        ),
        pytest.param(
            [{"ports": [{"port": "http"}, {"port": "none"}, {"port": 5, "endPort": 9, "protocol": "UDP"}]}],
            ["tcp dport 8080-8080", "udp dport 5-9"],
            id="ports",
        ),
        pytest.param([{"ports": [{"protocol": "TCP"}]}], ["meta l4proto tcp"], id="a protocol"),
    ],
)
def test_a_rule_lets_in_whom_it_names(ingress: list[Any], conditions: list[str]) -> None:
    assert allowed(policy(*ingress)) == conditions


def test_policies_add_up_and_hold_for_the_pods_that_they_choose_on_their_node() -> None:
    closed, metrics = policy(), policy({"ports": [{"port": 9090}]})
    assert allowed(closed, metrics) == ["tcp dport 9090-9090"]
    assert allowed(policy(podSelector={"matchLabels": {"app": "other"}})) is None
    assert allowed(closed, node="node-1") is None
    assert allowed(policy(policyTypes=["Egress"])) is None
    assert allowed(closed | {"metadata": {"namespace": "there"}}) is None


@pytest.mark.parametrize(
    ("operator", "values", "gold", "plain"),
    [
        ("In", ["gold", "silver"], True, False),
        ("NotIn", ["gold"], False, True),
        ("Exists", [], True, False),
        ("DoesNotExist", [], False, True),
    ],
)
def test_labels_are_compared_as_kubernetes_does(
    operator: str, values: list[str], gold: bool, plain: bool
) -> None:
    selector = {"matchExpressions": [{"key": "tier", "operator": operator, "values": values}]}
    assert matches(selector, FRIEND.labels) is gold
    assert matches(selector, SERVER.labels) is plain


def test_a_pod_that_has_ended_or_uses_the_nodes_network_is_in_no_rule() -> None:
    found = {
        "metadata": {"namespace": "here", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"nodeName": "node-0", "containers": [{"ports": [{"name": "http", "containerPort": 8080}]}]},
        "status": {"podIP": "10.244.0.2", "phase": "Running"},
    }
    assert (made := Pod.of(found)) is not None
    assert made.ports == {("TCP", "http"): 8080}
    assert Pod.of(found | {"status": {"podIP": "10.244.0.2", "phase": "Succeeded"}}) is None
    assert Pod.of(found | {"status": {"phase": "Pending"}}) is None
    assert Pod.of(found | {"spec": {**found["spec"], "hostNetwork": True}}) is None
