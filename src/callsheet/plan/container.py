"""One container of one role: its templates are parsed once, then filled for each replica."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

from callsheet import contract
from callsheet.errors import InvalidExperiment, Problem
from callsheet.plan.addressing import Addressing
from callsheet.plan.endpoints import Endpoint
from callsheet.plan.model import ContainerPlan, EnvRef, ProbePlan, ReplicaContainer
from callsheet.plan.template import Placeholder, Template, fill, parse, placeholders
from callsheet.spec.experiment import Container, Experiment, Role
from callsheet.spec.kubernetes import EnvVar, ResourceFieldRef
from callsheet.spec.quantity import parse_quantity


@dataclass(frozen=True, slots=True)
class Context:
    """What a container is planned in."""

    experiment: Experiment
    addressing: Addressing
    run: str
    table: Mapping[str, Endpoint]
    indexes: Mapping[str, Sequence[int]]


class ContainerPlanner:
    """One container of one role: templates are parsed once, then filled for each replica."""

    def __init__(self, context: Context, role: Role, container: Container) -> None:
        self.context = context
        self.addressing = context.addressing
        self.role = role
        self.container = container
        self.bound = [bind.name for bind in (*container.binds, *container.exposes)]
        self.endpoints = [context.table[name] for name in dict.fromkeys([*self.bound, *container.connects])]
        self.mounts = {mount.name: mount for mount in container.volume_mounts}
        self.volumes = {volume.name: volume for volume in context.experiment.spec.volumes}
        self.command = [self._parse(text) for text in (*container.command, *container.args)]
        self._split_env()

    def _parse(self, text: str) -> Template:
        return parse(text, self.context.table)

    def _split_env(self) -> None:
        """Sort the declared variables by when their value is known: for all replicas, for each, or at the start."""
        self.same: dict[str, str] = {}
        self.each: dict[str, Callable[[int], str]] = {}
        self.refs: list[EnvRef] = []
        for source in self.container.env_from:
            if source.secret_ref:
                self.refs.append(
                    EnvRef(source.prefix, "secret", source.secret_ref.name, "", source.secret_ref.optional)
                )
            if source.config_map_ref:
                ref = source.config_map_ref
                self.refs.append(EnvRef(source.prefix, "configmap", ref.name, "", ref.optional))
        declared = {v.name: v for v in (*self.context.experiment.spec.env, *self.container.env)}
        for variable in declared.values():
            self._declare(variable)

    def _declare(self, variable: EnvVar) -> None:
        source = variable.value_from
        if source is None:
            template = self._parse(variable.value or "")
            if any(self._varies(placeholder) for placeholder in placeholders(template)):
                self.each[variable.name] = lambda index: fill(
                    template, lambda placeholder: self._value(placeholder, index)
                )
            else:
                self.same[variable.name] = fill(template, lambda placeholder: self._value(placeholder, 0))
        elif source.secret_key_ref:
            ref = source.secret_key_ref
            self.refs.append(EnvRef(variable.name, "secret", ref.name, ref.key, ref.optional))
        elif source.config_map_key_ref:
            ref = source.config_map_key_ref
            self.refs.append(EnvRef(variable.name, "configmap", ref.name, ref.key, ref.optional))
        elif source.field_ref:
            path = source.field_ref.field_path
            name = self.context.experiment.name
            self.each[variable.name] = lambda index: self.addressing.field(path, name, self.role, index)
        elif source.resource_field_ref:
            self.same[variable.name] = self._resource(source.resource_field_ref)

    def _resource(self, ref: ResourceFieldRef) -> str:
        name = ref.container_name or self.container.name
        container = next((c for c in self.role.group if c.name == name), self.container)
        kind, _, resource = ref.resource.partition(".")
        resources = container.resources
        text = (resources.limits if kind == "limits" else resources.requests).get(resource)
        amount = (
            parse_quantity(text)
            if text
            else self.addressing.capacity.get(resource, 0)
            if kind == "limits"
            else 0
        )
        return str(ceil(amount / parse_quantity(ref.divisor)))

    def _varies(self, placeholder: Placeholder) -> bool:
        """Whether two replicas may see different values."""
        if not placeholder.tail:
            return placeholder.head == "index"
        if placeholder.head == contract.MOUNTS:
            return True
        if placeholder.head == contract.FILES:
            return False
        endpoint = self.context.table[placeholder.head]
        return placeholder.tail != "all" and (endpoint.role == self.role.name or len(endpoint.addresses) > 1)

    def _value(self, placeholder: Placeholder, index: int) -> str:
        if not placeholder.tail:
            return self._word(placeholder.head, index)
        if placeholder.head == contract.FILES:
            return self.addressing.file(placeholder.tail)
        if placeholder.head == contract.MOUNTS:
            mount = self.mounts[placeholder.tail]
            return self.addressing.mount(self.volumes[mount.name], mount, self.role.name, index)
        endpoint = self.context.table[placeholder.head]
        if placeholder.tail == "bind":
            return self._bind(endpoint, index)
        if placeholder.tail == "all":
            return self._all(endpoint)
        if placeholder.tail == "any":
            return self.addressing.any(endpoint.name, endpoint.port) or endpoint.seen_from(
                self._position(index)
            )
        address = endpoint.seen_from(self._position(index))
        host, _, port = address.rpartition(":")
        return {"addr": address, "host": host, "port": port}[placeholder.tail]

    def _position(self, index: int) -> int:
        """Place of an index among the role's members; they differ for members that joined by hand."""
        members = self.context.indexes[self.role.name]
        return index if index < len(members) and members[index] == index else members.index(index)

    def _word(self, word: str, index: int) -> str:
        context = self.context
        return {
            "experiment": context.experiment.name,
            "run": context.run,
            "role": self.role.name,
            "index": str(index),
            "container": self.container.name,
            "replicas": str(len(context.indexes[self.role.name])),
            "storage": self.addressing.storage,
        }[word]

    def _bind(self, endpoint: Endpoint, index: int) -> str:
        port = self.addressing.port(endpoint.name, endpoint.port, index)
        return f"{self.addressing.listen(self.role.name, index)}:{port}"

    def _all(self, endpoint: Endpoint) -> str:
        text = ",".join(endpoint.addresses) if endpoint.replicas else ""
        if len(text) > contract.LONGEST_VALUE:
            raise InvalidExperiment(
                [
                    Problem(
                        f"spec.roles[{self.role.name}]",
                        f"{{{endpoint.name}.all}} would be {len(text):,} characters long, more than a process may be given",
                        f"read the addresses from the file that {contract.ADDRESSES} names",
                    )
                ]
            )
        return text

    def shared(self) -> ContainerPlan:
        """What all replicas have in common."""
        context = self.context
        env = dict(self.same)
        env[contract.EXPERIMENT] = context.experiment.name
        env[contract.RUN] = context.run
        env[contract.ROLE] = self.role.name
        env[contract.CONTAINER] = self.container.name
        env[contract.REPLICAS] = str(len(context.indexes[self.role.name]))
        env[contract.ADDRESSES] = self.addressing.addresses
        encryption = "" if context.experiment.spec.encryption else contract.ENCRYPTION_OFF
        optional = {
            contract.STORAGE: self.addressing.storage,
            contract.KEYS: self.addressing.keys,
            contract.ENCRYPTION: encryption,
        }
        for name, value in optional.items():
            if value:
                env[name] = value
        for endpoint in self.endpoints:
            everyone = ",".join(endpoint.addresses) if endpoint.replicas else ""
            if len(everyone) <= contract.LONGEST_VALUE:
                env[contract.endpoint_variable(endpoint.name, contract.ENDPOINT_ALL)] = everyone
        return ContainerPlan(
            name=self.container.name,
            env=env,
            env_refs=tuple(self.refs),
            ports={name: context.table[name].port for name in self.bound},
            exposed=tuple(expose.name for expose in self.container.exposes),
            probe=self._probe(),
            gpus=int(parse_quantity(self.container.resources.limits.get(contract.GPU_RESOURCE, "0"))),
        )

    def own(self, position: int, index: int) -> ReplicaContainer:
        """What is this replica's alone."""
        env = {name: make(index) for name, make in self.each.items()}
        env[contract.INDEX] = str(index)
        ports: dict[str, int] = {}
        for endpoint in self.endpoints:
            address = endpoint.seen_from(position)
            host, _, port = address.rpartition(":")
            prefix = contract.endpoint_variable(endpoint.name, "")
            env[prefix + contract.ENDPOINT_ADDR] = address
            env[prefix + contract.ENDPOINT_HOST] = host
            env[prefix + contract.ENDPOINT_PORT] = port
            if endpoint.container == self.container.name and endpoint.role == self.role.name:
                env[prefix + contract.ENDPOINT_BIND] = self._bind(endpoint, index)
                if int(port) != endpoint.port:
                    ports[endpoint.name] = int(port)
        command = tuple(
            fill(template, lambda placeholder: self._value(placeholder, index)) for template in self.command
        )
        mounts = {name: self._value(Placeholder(contract.MOUNTS, name), index) for name in self.mounts}
        return ReplicaContainer(command=command, env=env, ports=ports, mounts=mounts)

    def _probe(self) -> ProbePlan | None:
        probe = self.container.readiness_probe
        if probe is None:
            return None
        plan = ProbePlan(
            kind="exec",
            initial_delay=probe.initial_delay_seconds,
            period=probe.period_seconds,
            timeout=probe.timeout_seconds,
            successes=probe.success_threshold,
            failures=probe.failure_threshold,
        )
        if probe.http_get:
            get = probe.http_get
            port = self._probe_port(get.port)
            return replace(
                plan, kind="http", port=port, host=get.host or "", path=get.path, scheme=get.scheme
            )
        if probe.tcp_socket:
            tcp = probe.tcp_socket
            return replace(plan, kind="tcp", port=self._probe_port(tcp.port), host=tcp.host or "")
        return replace(plan, command=tuple(probe.exec.command) if probe.exec else ())

    def _probe_port(self, port: int | str) -> int:
        return port if isinstance(port, int) else self.context.table[port].port
