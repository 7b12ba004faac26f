"""One container of one role: its texts are parsed once, then filled in for each replica, and for a pod template."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import ceil
from typing import Literal

from callsheet import contract
from callsheet.errors import InvalidExperiment, Problem
from callsheet.plan.addressing import Addressing
from callsheet.plan.endpoints import Endpoint
from callsheet.plan.model import ContainerPlan, ContainerTemplate, EnvRef, ProbePlan, ReplicaContainer
from callsheet.plan.template import Placeholder, Template, fill, parse, placeholders
from callsheet.spec.experiment import Container, Experiment, Role
from callsheet.spec.kubernetes import EnvSource, ResourceFieldRef
from callsheet.spec.quantity import parse_quantity


@dataclass(frozen=True, slots=True)
class Context:
    """What a container is planned in."""

    experiment: Experiment
    addressing: Addressing
    run: str
    table: Mapping[str, Endpoint]
    indexes: Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True)
class _Variable:
    name: str
    value: Callable[[int], str] | None
    """For the replica with this index; None if it is looked up when the container starts."""
    varies: bool
    """Whether two replicas may have different values."""
    template: str | EnvRef
    """What a template says instead."""


class ContainerPlanner:
    """One container of one role."""

    def __init__(self, context: Context, role: Role, container: Container) -> None:
        self.context = context
        self.addressing = context.addressing
        self.syntax = context.addressing.template
        self.role = role
        self.container = container
        self.positions = {index: position for position, index in enumerate(context.indexes[role.name])}
        """An index differs from its position for members that joined by hand."""
        self.bound = [bind.name for bind in container.bound]
        self.binders = {role.name: role for role in context.experiment.spec.roles}
        self.endpoints = [context.table[name] for name in dict.fromkeys([*self.bound, *container.connects])]
        self.balanced = {e.name for e in self.endpoints if self._is_balanced(e)}
        self.mounts = {mount.name: mount for mount in container.volume_mounts}
        self.volumes = {volume.name: volume for volume in context.experiment.spec.volumes}
        self.command = [parse(text, context.table) for text in (*container.command, *container.args)]
        self.variables: dict[str, _Variable] = {}
        self.refs = list(self._env_from())
        for variable in chain(self._contract(), self._endpoint_variables(), self._declared()):
            self.variables[variable.name] = variable

    def _is_balanced(self, endpoint: Endpoint) -> bool:
        """Whether a template cannot name this role's replica of the endpoint: it knows no index modulo a number."""
        if self.syntax is None or endpoint.role == self.role.name:
            return False
        binder = self.binders[endpoint.role]
        fewest = binder.scale.min if binder.scale else binder.replicas
        return binder.most != 1 and self.role.most > fewest

    def _contract(self) -> Iterator[_Variable]:
        """The contract's variables, before yours, which may refer to them."""
        context, addressing = self.context, self.addressing
        yield self._ours(contract.EXPERIMENT, context.experiment.name)
        yield self._ours(contract.RUN, context.run)
        yield self._ours(contract.ROLE, self.role.name)
        yield self._ours(contract.INDEX, str, varies=True)
        yield self._ours(contract.CONTAINER, self.container.name)
        yield self._ours(contract.REPLICAS, str(len(context.indexes[self.role.name])))
        yield self._ours(contract.ATTEMPT, "0")  # whoever starts it again counts
        yield self._ours(contract.ADDRESSES, addressing.addresses)
        yield self._ours(contract.KEYS, addressing.keys)
        if not context.experiment.spec.encryption:
            yield self._ours(contract.ENCRYPTION, contract.ENCRYPTION_OFF)
        if addressing.storage:
            yield self._ours(contract.STORAGE, addressing.storage)

    def _endpoint_variables(self) -> Iterator[_Variable]:
        for endpoint in self.endpoints:
            prefix = contract.endpoint_variable(endpoint.name, "")
            for word in (contract.ENDPOINT_ADDR, contract.ENDPOINT_HOST, contract.ENDPOINT_PORT):
                placeholder = Placeholder(endpoint.name, word.lower())
                in_template = _part(self._address_in_template(endpoint), placeholder.tail)
                yield self._ours(prefix + word, self._filling(placeholder), in_template, varies=True)
            everyone = self._everyone(endpoint)
            if len(everyone) <= contract.LONGEST_VALUE:
                yield self._ours(prefix + contract.ENDPOINT_ALL, everyone)
            elif self.syntax:  # scaling may shorten the list that a template refers to
                yield self._ours(prefix + contract.ENDPOINT_ALL, "")
            if endpoint.name in self.bound:
                value = self._filling(Placeholder(endpoint.name, "bind"))
                yield self._ours(prefix + contract.ENDPOINT_BIND, value, value(0), varies=True)
        for name, text in self.addressing.env.items():
            yield self._ours(name, text)

    def _ours(
        self, name: str, value: str | Callable[[int], str], in_template: str = "", *, varies: bool = False
    ) -> _Variable:
        source = self.syntax.source(name, self.role) if self.syntax else None
        if isinstance(value, str):
            return _Variable(name, lambda _: value, varies, source or value)
        return _Variable(name, value, varies, source or in_template)

    def _env_from(self) -> Iterator[EnvRef]:
        for source in self.container.env_from:
            if ref := source.secret_ref:
                yield EnvRef(source.prefix, "secret", ref.name, optional=ref.optional)
            if ref := source.config_map_ref:
                yield EnvRef(source.prefix, "configmap", ref.name, optional=ref.optional)

    def _declared(self) -> Iterator[_Variable]:
        for variable in {
            v.name: v for v in (*self.context.experiment.spec.env, *self.container.env)
        }.values():
            if variable.value_from:
                yield self._referring(variable.name, variable.value_from)
                continue
            text = parse(variable.value or "", self.context.table)
            varies = any(self._varies(placeholder) for placeholder in placeholders(text))
            yield _Variable(variable.name, self._filling(text), varies, self._in_template(text))

    def _referring(self, name: str, source: EnvSource) -> _Variable:
        if source.field_ref:
            path = source.field_ref.field_path
            experiment, role = self.context.experiment.name, self.role
            ref = EnvRef(name, "field", key=path)
            return _Variable(name, lambda i: self.addressing.field(path, experiment, role, i), True, ref)
        if source.resource_field_ref:
            of = source.resource_field_ref
            amount = self._resource(of)
            ref = EnvRef(name, "resource", of.container_name or "", of.resource, divisor=of.divisor)
            return _Variable(name, lambda _: amount, False, ref)
        key = source.secret_key_ref or source.config_map_key_ref
        assert key is not None
        kind: Literal["secret", "configmap"] = "secret" if source.secret_key_ref else "configmap"
        self.refs.append(ref := EnvRef(name, kind, key.name, key.key, key.optional))
        return _Variable(name, None, False, ref)

    def _resource(self, ref: ResourceFieldRef) -> str:
        name = ref.container_name or self.container.name
        container = next((c for c in self.role.group if c.name == name), self.container)
        kind, _, resource = ref.resource.partition(".")
        limited = kind == "limits"
        text = (container.resources.limits if limited else container.resources.requests).get(resource)
        otherwise = self.addressing.capacity.get(resource, 0) if limited else 0
        return str(ceil((parse_quantity(text) if text else otherwise) / parse_quantity(ref.divisor)))

    def _varies(self, placeholder: Placeholder) -> bool:
        """Whether two replicas may see different values."""
        if not placeholder.tail:
            return placeholder.head == "index"
        if placeholder.head in contract.RESERVED_ENDPOINTS:
            return placeholder.head == contract.MOUNTS
        endpoint = self.context.table[placeholder.head]
        return placeholder.tail != "all" and (endpoint.role == self.role.name or len(endpoint.addresses) > 1)

    def _filling(self, text: Template | Placeholder) -> Callable[[int], str]:
        if isinstance(text, Placeholder):
            return lambda index: self._value(text, index)
        return lambda index: fill(text, lambda placeholder: self._value(placeholder, index))

    def _value(self, placeholder: Placeholder, index: int) -> str:
        head, tail = placeholder.head, placeholder.tail
        if not tail:
            variable = self.variables.get(contract.PREFIX + head.upper())
            return variable.value(index) if variable and variable.value else ""
        if head == contract.FILES:
            return self.addressing.file(tail)
        if head == contract.MOUNTS:
            mount = self.mounts[tail]
            return self.addressing.mount(self.volumes[mount.name], mount, self.role.name, index)
        endpoint = self.context.table[head]
        if tail == "bind":
            port = self.addressing.port(endpoint.name, endpoint.port, index)
            return f"{self.addressing.listen(self.role.name, index)}:{port}"
        if tail == "all":
            return self._everyone(endpoint, refuse=True)
        anyone = self.addressing.any(endpoint.name, endpoint.port)
        if anyone and (tail == "any" or endpoint.name in self.balanced):
            return _part(anyone, tail)
        return _part(endpoint.seen_from(self.positions.get(index, index)), tail)

    def _everyone(self, endpoint: Endpoint, *, refuse: bool = False) -> str:
        text = ",".join(endpoint.addresses) if endpoint.replicas else ""
        if refuse and len(text) > contract.LONGEST_VALUE:
            problem = Problem(
                f"spec.roles[{self.role.name}]",
                f"{{{endpoint.name}.all}} would be {len(text):,} characters long, more than a process may be given",
                f"read the addresses from the file that {contract.ADDRESSES} names",
            )
            raise InvalidExperiment([problem])
        return text

    def _address_in_template(self, endpoint: Endpoint) -> str:
        if self.syntax is None:
            return ""
        if endpoint.name in self.balanced:
            return self.addressing.any(endpoint.name, endpoint.port)
        single = endpoint.role != self.role.name and self.binders[endpoint.role].most == 1
        return endpoint.addresses[0] if single else f"{self.syntax.host(endpoint.role)}:{endpoint.port}"

    def _in_template(self, text: Template) -> str:
        """A text for a template: what differs between replicas as references to variables."""
        syntax = self.syntax
        if syntax is None:
            return ""

        def refer(placeholder: Placeholder) -> str:
            variable = contract.PREFIX + placeholder.head.upper()
            if placeholder.tail:
                variable = contract.endpoint_variable(placeholder.head, placeholder.tail.upper())
            return syntax.reference(variable) if variable in self.variables else self._value(placeholder, 0)

        return "".join([syntax.literal(part) if isinstance(part, str) else refer(part) for part in text])

    def shared(self) -> ContainerPlan:
        """What all replicas have in common."""
        return ContainerPlan(
            name=self.container.name,
            env={v.name: v.value(0) for v in self.variables.values() if v.value and not v.varies},
            env_refs=tuple(self.refs),
            ports={name: self.context.table[name].port for name in self.bound},
            exposed=tuple(expose.name for expose in self.container.exposes),
            probe=self._probe(),
            gpus=int(parse_quantity(self.container.resources.limits.get(contract.GPU_RESOURCE, "0"))),
            balanced=tuple(sorted(self.balanced)),
        )

    def own(self, index: int) -> ReplicaContainer:
        """What is this replica's alone."""
        ports = {
            name: self.addressing.port(name, self.context.table[name].port, index) for name in self.bound
        }
        return ReplicaContainer(
            command=tuple([self._filling(text)(index) for text in self.command]),
            env={v.name: v.value(index) for v in self.variables.values() if v.value and v.varies},
            ports={name: port for name, port in ports.items() if port != self.context.table[name].port},
            mounts={name: self._value(Placeholder(contract.MOUNTS, name), index) for name in self.mounts},
        )

    def template(self) -> ContainerTemplate:
        """What a template for all replicas says."""
        env = {v.name: v.template for v in self.variables.values()}
        return ContainerTemplate(tuple(self._in_template(text) for text in self.command), env)

    def _probe(self) -> ProbePlan | None:
        probe = self.container.readiness_probe
        if probe is None:
            return None
        get, action = probe.http_get, probe.http_get or probe.tcp_socket
        port = action.port if action else 0
        return ProbePlan(
            kind="http" if get else "tcp" if action else "exec",
            command=tuple(probe.exec.command) if probe.exec else (),
            port=port if isinstance(port, int) else self.context.table[port].port,
            host=(action.host if action else None) or "",
            path=get.path if get else "/",
            scheme=get.scheme if get else "HTTP",
            initial_delay=probe.initial_delay_seconds,
            period=probe.period_seconds,
            timeout=probe.timeout_seconds,
            successes=probe.success_threshold,
            failures=probe.failure_threshold,
        )


def _part(address: str, word: str) -> str:
    """`addr` or `any`: all of it; `host` or `port`: the one or the other."""
    host, _, port = address.rpartition(":")
    return {"host": host, "port": port}.get(word, address)
