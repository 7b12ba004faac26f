"""What the API server rejects: bounds, patterns, and rules in CEL that match those of `callsheet validate`.

The server estimates each rule's cost from the largest object that the schema allows, and accepts no expensive rule. So
lists have a maximum size here that files on a laptop do not have; the sizes are generous and listed in one table.
"""

from __future__ import annotations

from typing import Any

from callsheet import contract
from callsheet.spec.experiment import LABEL_PATTERN, LONGEST_ROLE_OBJECT, ContainerFields
from callsheet.spec.kubernetes import EnvSource, Volume
from callsheet.spec.schema import keys

Node = dict[str, Any]

MOST = {
    "roles": 64,
    "containers": 8,
    "binds": 32,
    "exposes": 16,
    "connects": 64,
    "env": 128,
    "envFrom": 16,
    "volumes": 64,
    "volumeMounts": 32,
    "success": 64,
}
"""The most items that a list may have in a cluster."""
MOST_KEYS = 64
"""The most keys of a mapping such as labels."""

_OBJECT_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
_VARIABLE = r"^[-._a-zA-Z][-._a-zA-Z0-9]*$"
_KEY = r"^[-._A-Za-z0-9]+$"
_LABEL_VALUE = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"
_TAG = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]$"
)
_ENDPOINTS = ("binds", "exposes")
_STORAGE = r"^((s3|gs|az|pvc)://[^/].*|file:///.*)$"


def add_rules(root: Node) -> None:
    """Put bounds, patterns and rules into the schema of an experiment."""
    spec = _part(root, "spec")
    role = _part(spec, "roles")["items"]
    container = _part(role, "containers")["items"]
    for owner in (role, container):
        _container(owner)
    _role(role)
    _spec(spec)
    _experiment(root)


def _part(node: Node, key: str) -> Node:
    child: Node = node["properties"][key]
    return child


def _rule(node: Node, rule: str, message: str, field: str = "") -> None:
    made = {"rule": rule, "message": message} | ({"fieldPath": f".{field}"} if field else {})
    node.setdefault("x-kubernetes-validations", []).append(made)


def _list(node: Node, key: str, by: str = "") -> Node:
    """Bound a list; `by` is the key that must differ between its items. Returns the item's schema."""
    schema = _part(node, key)
    schema["maxItems"] = MOST[key]
    if by:
        schema |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [by]}
    items: Node = schema["items"]
    return items


def _one_of(node: Node, names: list[str]) -> None:
    count = " + ".join(f"(has(self.{name}) ? 1 : 0)" for name in names)
    _rule(node, f"{count} == 1", f"set exactly one of {', '.join(names)}")


def _named(node: Node, *path: str, pattern: str = _OBJECT_NAME, longest: int = 253) -> None:
    for key in path:
        node = _part(node, key)
    node |= {"pattern": pattern, "maxLength": longest}


def _experiment(root: Node) -> None:
    name = "size(self.metadata.name)"
    _rule(
        root,
        f"self.spec.roles.all(r, {name} + 1 + size(r.name) <= {LONGEST_ROLE_OBJECT})",
        f"<experiment>-<role> may have at most {LONGEST_ROLE_OBJECT} characters: shorten one of the names",
    )
    fits = {
        owner: " && ".join(_all(owner, key, f"{name} + 1 + size({key[0]}.name) <= 63") for key in _ENDPOINTS)
        for owner in ("r", "c")
    }
    _rule(
        root,
        f"self.spec.roles.all(r, {fits['r']} && {_all('r', 'containers', fits['c'])})",
        "<experiment>-<endpoint> may have at most 63 characters: shorten one of the names",
    )


def _spec(spec: Node) -> None:
    _list(spec, "roles", by="name")
    _variables(spec)
    volume = _list(spec, "volumes", by="name")
    _volume(volume)
    files = _part(spec, "files")
    files["maxProperties"] = MOST_KEYS
    _rule(
        files,
        f"self.all(name, size(name) <= 253 && name.matches(r'{_KEY}') && name != '.' && name != '..')",
        "a file name may contain only letters, digits, '.', '_' and '-', and no folders",
    )
    _part(spec, "storage")["pattern"] = _STORAGE
    _wiring(spec)
    _success(spec)
    names = "[has(self.volumes) ? self.volumes.map(v, v.name) : []]"
    known = {owner: _all(owner, "volumeMounts", "v.name in names") for owner in ("r", "c")}
    _rule(
        spec,
        f"{names}.all(names, self.roles.all(r, {known['r']} && {_all('r', 'containers', known['c'])}))",
        "a volumeMount refers to a volume that is not in spec.volumes",
    )


def _all(owner: str, key: str, rule: str) -> str:
    """CEL: a rule about every item, which it calls by the first letter of the key. (With `.?` the server could not tell
    how long the list may be.)"""
    return f"(!has({owner}.{key}) || {owner}.{key}.all({key[0]}, {rule}))"


def _names(owner: str) -> str:
    """CEL: the names of the endpoints that a role or container binds."""
    return " + ".join(f"(has({owner}.{key}) ? {owner}.{key}.map(e, e.name) : [])" for key in _ENDPOINTS)


def _ports(owner: str) -> str:
    """CEL: the ports that a role or container was given."""
    return " + ".join(
        f"(has({owner}.{key}) ? {owner}.{key}.filter(e, has(e.port)).map(e, e.port) : [])"
        for key in _ENDPOINTS
    )


def _wiring(spec: Node) -> None:
    lone = f"self.roles.map(r, {_names('r')})"
    groups = f"self.roles.map(r, has(r.containers) ? r.containers.map(c, {_names('c')}) : [])"
    # A list of one item and `all` give a name to what is used often.
    named = f"[{lone}].all(lone, [{groups}].all(groups, {{}}))"
    bound = "(lone.exists(l, n in l) || groups.exists(g, g.exists(l, n in l)))"
    message = (
        "a role connects to an endpoint that no role binds: add it to the binds of the role that listens"
    )
    connects = f"(!has({{0}}.connects) || {{0}}.connects.all(n, {bound}))"
    for rule in (connects.format("r"), _all("r", "containers", connects.format("c"))):
        _rule(spec, named.format(f"self.roles.all(r, {rule})"), message)
    times = "lone.filter(m, n in m).size() + groups.map(g, g.filter(m, n in m).size()).sum()"
    once = f"l.all(n, l.indexOf(n) == l.lastIndexOf(n) && {times} == 1)"
    _rule(
        spec,
        named.format(f"lone.all(l, {once}) && groups.all(h, h.all(l, {once}))"),
        "an endpoint is bound twice: rename one, or connect to the other",
    )


def _success(spec: Node) -> None:
    names = "!has(self.lifecycle) || !has(self.lifecycle.success) || self.lifecycle.success"
    _rule(
        spec,
        f"{names}.all(s, self.roles.exists(r, r.name == s))",
        "lifecycle.success names a role that does not exist",
        "lifecycle.success",
    )
    _rule(
        spec,
        f"{names}.all(s, self.roles.all(r, r.name != s || !has(r.restart) || r.restart.policy != 'Always'))",
        "lifecycle.success names a role that never ends: its restart policy is Always",
        "lifecycle.success",
    )
    _list(_part(spec, "lifecycle"), "success")["maxLength"] = 63


def _role(role: Node) -> None:
    _list(role, "containers", by="name")
    scale = _part(role, "scale")
    _rule(scale, "self.min <= self.max", "min is greater than max: swap or change them")
    _rule(
        role,
        "!has(self.scale) || (self.scale.min <= self.replicas && self.replicas <= self.scale.max)",
        "replicas is outside scale",
        "replicas",
    )
    message = "a port is already used by another endpoint of the same replica"
    _rule(role, f"[{_ports('self')}].all(l, l.all(p, l.indexOf(p) == l.lastIndexOf(p)))", message)
    _rule(
        role,
        f"!has(self.containers) || [self.containers.map(c, {_ports('c')})].all(g, g.all(l, l.all(p,"
        " l.indexOf(p) == l.lastIndexOf(p) && g.filter(m, p in m).size() == 1)))",
        message,
    )
    for key, info in keys(ContainerFields).items():
        default = info.default
        given = f"has(self.{key})"
        if isinstance(default, list):
            given = f"has(self.{key}) && size(self.{key}) > 0"
        elif default is False:
            given = f"has(self.{key}) && self.{key}"
        _rule(
            role,
            f"!has(self.containers) || size(self.containers) == 0 || !({given})",
            f"{key} cannot be set next to containers: move it into one of them",
            key,
        )
    for key in ("labels", "nodeSelector", "annotations"):
        _tags(_part(role, key), values=key != "annotations")
    _part(role, "terminationGracePeriod")["minLength"] = 1


def _tags(node: Node, *, values: bool) -> None:
    node["maxProperties"] = MOST_KEYS
    if values:
        node["additionalProperties"] |= {"pattern": _LABEL_VALUE, "maxLength": 63}
    _rule(
        node,
        f"self.all(key, size(key) <= 317 && key.matches(r'{_TAG}'))",
        "this is not a valid Kubernetes key",
    )


def _container(owner: Node) -> None:
    for key in _ENDPOINTS:
        endpoint = _list(owner, key, by="name")
        reserved = " && ".join(f"self.name != '{name}'" for name in contract.RESERVED_ENDPOINTS)
        _rule(endpoint, reserved, "this name is reserved for placeholders: choose another")
    _list(owner, "connects")
    _variables(owner)
    source = _list(owner, "envFrom")
    refs = ["configMapRef", "secretRef"]
    _one_of(source, refs)
    for ref in refs:
        _named(source, ref, "name")
    mount = _list(owner, "volumeMounts", by="mountPath")
    _named(mount, "name", pattern=LABEL_PATTERN, longest=63)
    _named(mount, "mountPath", pattern="^/[^:]*$", longest=4096)
    _named(mount, "subPath", pattern="^([^/].*)?$", longest=512)
    _rule(
        _part(mount, "subPath"),
        "self != '..' && !self.startsWith('../') && !self.endsWith('/..') && !self.contains('/../')",
        "subPath points outside the volume: use a relative path without '..'",
    )
    _resources(_part(owner, "resources"))
    _probe(owner)


def _variables(owner: Node) -> None:
    variable = _list(owner, "env", by="name")
    _named(variable, "name", pattern=_VARIABLE, longest=256)
    _rule(
        variable,
        f"!self.name.startsWith('{contract.PREFIX}')",
        f"names that start with {contract.PREFIX} are reserved",
        "name",
    )
    _rule(variable, "has(self.value) != has(self.valueFrom)", "set either value or valueFrom")
    source = _part(variable, "valueFrom")
    _one_of(source, list(keys(EnvSource)))
    for ref in ("secretKeyRef", "configMapKeyRef"):
        _named(source, ref, "name")
        _named(source, ref, "key", pattern=_KEY)
    _named(source, "resourceFieldRef", "resource", pattern=r"^(limits|requests)\..+$")


def _volume(volume: Node) -> None:
    _one_of(volume, [key for key in keys(Volume) if key != "name"])
    _named(volume, "name", pattern=LABEL_PATTERN, longest=63)
    _named(volume, "hostPath", "path", pattern="^/", longest=4096)
    _named(volume, "secret", "secretName")
    _named(volume, "configMap", "name")
    _named(volume, "persistentVolumeClaim", "claimName")


def _resources(node: Node) -> None:
    for key in ("requests", "limits"):
        amounts = _part(node, key)
        amounts["maxProperties"] = 16
        amounts["additionalProperties"]["maxLength"] = 32
        gpu = contract.GPU_RESOURCE
        _rule(
            amounts,
            f"!('{gpu}' in self) || quantity(string(self['{gpu}'])).isInteger()",
            "GPUs come in whole numbers: write 1, 2, ...",
        )
    _rule(
        node,
        "!has(self.requests) || !has(self.limits) || self.requests.all(name, !(name in self.limits) ||"
        " quantity(string(self.requests[name])).compareTo(quantity(string(self.limits[name]))) <= 0)",
        "a request exceeds its limit: lower it, or raise the limit",
        "requests",
    )


def _probe(owner: Node) -> None:
    probe = _part(owner, "readinessProbe")
    _one_of(probe, ["exec", "httpGet", "tcpSocket"])
    for action in ("httpGet", "tcpSocket"):
        _part(_part(probe, action), "port")["maxLength"] = 63
        _rule(
            _part(probe, action),
            "type(self.port) != int || (1 <= int(self.port) && int(self.port) <= 65535)",
            "a port is a number from 1 to 65535",
            "port",
        )
        port = f"self.readinessProbe.{action}.port"
        _rule(
            owner,
            f"!has(self.readinessProbe) || !has(self.readinessProbe.{action}) || type({port}) == int"
            f" || string({port}) in {_names('self')}",
            "the probe's port is not an endpoint that this container binds",
            "readinessProbe",
        )
