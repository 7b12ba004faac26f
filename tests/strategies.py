"""Whole experiments for property tests: valid ones, with every field of the schema used now and then."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from callsheet.spec import experiment as model
from callsheet.spec import kubernetes as k8s
from callsheet.spec.model import Model

LABELS = st.from_regex(r"[a-z]([-a-z0-9]{0,10}[a-z0-9])?", fullmatch=True).filter(
    lambda name: name not in ("files", "mounts")
)
# No braces: what stands in braces would have to resolve. Everything else must survive, odd characters included.
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="{}\x00"), max_size=20)
PLAIN = st.text("abcdefgh0123456789._-/ ", min_size=1, max_size=15)
VARIABLES = st.from_regex(r"[A-Z][A-Z0-9_]{0,8}", fullmatch=True).filter(
    lambda n: not n.startswith("CALLSHEET")
)
QUANTITIES = st.sampled_from(["1", "1.5", "500m", "10Gi", "2G", "1e3", "0.1"])
DURATIONS = st.sampled_from(["1s", "90s", "15m", "1h30m", "7d", "500ms"])
LABEL_VALUES = st.dictionaries(LABELS, LABELS, max_size=2)
FREE = st.dictionaries(
    LABELS, st.one_of(PLAIN, st.booleans(), st.integers(0, 9), st.lists(PLAIN, max_size=2)), max_size=2
)


def _some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Any subset of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


def _make(cls: type[Model], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Models with all of these fields. (`builds` would add more: it sees the camelCase names as parameters.)"""
    return st.fixed_dictionaries(fields).map(lambda given: cls(**given))


def _sources() -> st.SearchStrategy[k8s.EnvSource]:
    key = _make(k8s.KeyRef, name=LABELS, key=LABELS)
    field = _make(k8s.FieldRef, field_path=st.sampled_from(["metadata.name", "status.podIP"]))
    resource = _make(k8s.ResourceFieldRef, resource=st.sampled_from(["limits.cpu", "requests.memory"]))
    return st.one_of(
        key.map(lambda ref: k8s.EnvSource(secret_key_ref=ref)),
        key.map(lambda ref: k8s.EnvSource(config_map_key_ref=ref)),
        field.map(lambda ref: k8s.EnvSource(field_ref=ref)),
        resource.map(lambda ref: k8s.EnvSource(resource_field_ref=ref)),
    )


def _env() -> st.SearchStrategy[list[k8s.EnvVar]]:
    plain = _make(k8s.EnvVar, name=VARIABLES, value=TEXTS)
    sourced = _make(k8s.EnvVar, name=VARIABLES, value_from=_sources())
    return st.lists(st.one_of(plain, sourced), max_size=3, unique_by=lambda variable: variable.name)


def _probes() -> st.SearchStrategy[k8s.Probe]:
    port = st.integers(1, 65535)
    action = st.one_of(
        _make(k8s.HTTPGetAction, port=port).map(lambda a: {"http_get": a}),
        _make(k8s.TCPSocketAction, port=port).map(lambda a: {"tcp_socket": a}),
        _make(k8s.ExecAction, command=st.lists(PLAIN, min_size=1, max_size=2)).map(lambda a: {"exec": a}),
    )
    timing = _some(period_seconds=st.integers(1, 9), failure_threshold=st.integers(1, 9))
    return st.tuples(action, timing).map(lambda both: k8s.Probe(**both[0], **both[1]))


@st.composite
def _container(
    draw: st.DrawFn, name: str, own: list[str], others: list[str], volumes: list[str]
) -> dict[str, Any]:
    """Fields of one container. `own`: endpoints that it binds; `others`: endpoints that it may connect to."""
    ports = draw(st.lists(st.integers(1, 65535), min_size=len(own), max_size=len(own), unique=True))
    binds, exposes = [], []
    for endpoint, port in zip(own, ports, strict=True):
        given = {"name": endpoint, **draw(st.sampled_from([{}, {"port": port}]))}
        if draw(st.booleans()):
            binds.append(model.Bind(**given))
        else:
            exposes.append(
                model.Expose(**given, **draw(_some(type=st.sampled_from(["NodePort", "LoadBalancer"]))))
            )
    mounts = draw(st.lists(st.sampled_from(volumes), max_size=2, unique=True)) if volumes else []
    fields: dict[str, Any] = draw(
        _some(
            image=PLAIN,
            image_pull_policy=st.sampled_from(["Always", "IfNotPresent", "Never"]),
            args=st.lists(TEXTS, max_size=3),
            env=_env(),
            env_from=st.lists(
                LABELS.map(lambda n: k8s.EnvFromSource(secret_ref=k8s.SourceRef(name=n))), max_size=2
            ),
            resources=_make(
                k8s.ResourceRequirements,
                requests=st.dictionaries(st.sampled_from(["cpu", "memory"]), QUANTITIES),
                limits=st.dictionaries(st.just("nvidia.com/gpu"), st.sampled_from(["0", "1"])),
            ),
            readiness_probe=_probes(),
            security_context=FREE,
            stdin=st.booleans(),
            tty=st.booleans(),
            container_patch=FREE,
        )
    )
    fields |= {"name": name, "command": draw(st.lists(TEXTS.filter(bool), min_size=1, max_size=3))}
    if binds:
        fields["binds"] = binds
    if exposes:
        fields["exposes"] = exposes
    if others:
        fields["connects"] = draw(st.lists(st.sampled_from(others), max_size=2, unique=True))
    if mounts:
        fields["volume_mounts"] = [
            k8s.VolumeMount(name=mount, mount_path=f"/mnt/{mount}") for mount in mounts
        ]
    return fields


def _pod_fields() -> st.SearchStrategy[dict[str, Any]]:
    toleration = _make(k8s.Toleration, key=LABELS, operator=st.just("Exists"), effect=st.just("NoExecute"))
    return _some(
        restart=_make(
            model.Restart, policy=st.sampled_from(["OnFailure", "Never"]), limit=st.integers(0, 99)
        ),
        termination_grace_period=DURATIONS,
        node_selector=LABEL_VALUES,
        tolerations=st.lists(toleration, max_size=2),
        affinity=FREE,
        priority_class_name=LABELS,
        image_pull_secrets=st.lists(_make(k8s.LocalObjectReference, name=LABELS), max_size=2),
        service_account_name=LABELS,
        labels=LABEL_VALUES,
        annotations=st.dictionaries(LABELS, TEXTS, max_size=2),
        pod_patch=FREE,
    )


@st.composite
def _role(draw: st.DrawFn, name: str, containers: list[dict[str, Any]]) -> model.Role:
    replicas = draw(st.integers(0, 5))
    fields = draw(_pod_fields()) | {"name": name} | draw(st.sampled_from([{}, {"replicas": replicas}]))
    if "replicas" in fields and draw(st.booleans()):
        fields["scale"] = model.Scale(
            min=draw(st.integers(0, replicas)), max=replicas + draw(st.integers(0, 5))
        )
    if len(containers) == 1:
        return model.Role.model_validate(containers[0] | fields)
    fields["containers"] = [model.Container.model_validate(container) for container in containers]
    return model.Role.model_validate(fields)


def _volumes(names: list[str]) -> st.SearchStrategy[list[k8s.Volume]]:
    kinds = st.one_of(
        _make(k8s.EmptyDirVolume, medium=st.sampled_from(["", "Memory"])).map(lambda v: {"empty_dir": v}),
        _make(k8s.HostPathVolume, path=st.just("/data")).map(lambda v: {"host_path": v}),
        _make(k8s.SecretVolume, secret_name=LABELS).map(lambda v: {"secret": v}),
        _make(k8s.ConfigMapVolume, name=LABELS).map(lambda v: {"config_map": v}),
        _make(k8s.ClaimVolume, claim_name=LABELS).map(lambda v: {"persistent_volume_claim": v}),
        _make(k8s.NFSVolume, server=LABELS, path=st.just("/x")).map(lambda v: {"nfs": v}),
        FREE.map(lambda v: {"csi": v}),
    )
    return st.tuples(
        *(kinds.map(lambda kind, name=name: k8s.Volume(name=name, **kind)) for name in names)
    ).map(list)


@st.composite
def experiments(draw: st.DrawFn) -> model.Experiment:
    """A valid experiment: names are unique, every connect has a bind, every mount a volume."""
    roles = draw(st.lists(LABELS, min_size=1, max_size=3, unique=True))
    endpoints = draw(st.lists(LABELS, max_size=4, unique=True))
    volumes = draw(st.lists(LABELS, max_size=2, unique=True))
    binder = {endpoint: draw(st.sampled_from(roles)) for endpoint in endpoints}
    made = []
    for role in roles:
        names = draw(st.one_of(st.just([role]), st.lists(LABELS, min_size=2, max_size=3, unique=True)))
        mine = [endpoint for endpoint in endpoints if binder[endpoint] == role]
        others = [endpoint for endpoint in endpoints if binder[endpoint] != role]
        containers = [
            draw(_container(name, mine if position == 0 else [], others, volumes))
            for position, name in enumerate(names)
        ]
        made.append(draw(_role(role, containers)))
    lifecycle = _some(
        success=st.lists(st.sampled_from(roles), max_size=2, unique=True),
        max_restarts=st.integers(0, 99),
        ttl_after_finished=DURATIONS,
        deadline=DURATIONS,
        suspend=st.booleans(),
        clean_pods=st.sampled_from(["Running", "All", "None"]),
    )
    fields = draw(
        _some(
            image=PLAIN,
            workdir=_make(model.Workdir, path=PLAIN, exclude=st.lists(PLAIN, max_size=2)),
            storage=st.just("s3://bucket/prefix"),
            env=_env(),
            files=st.dictionaries(LABELS.map(lambda name: f"{name}.py"), TEXTS, max_size=2),
            lifecycle=lifecycle.map(lambda given: model.Lifecycle(**given)),
        )
    )
    fields |= {"roles": made, "volumes": draw(_volumes(volumes))} if volumes else {"roles": made}
    metadata = {"name": draw(LABELS)} | draw(
        _some(namespace=LABELS, labels=LABEL_VALUES, annotations=LABEL_VALUES)
    )
    return model.Experiment(metadata=model.Metadata(**metadata), spec=model.ExperimentSpec(**fields))
