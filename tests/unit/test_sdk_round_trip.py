"""File, Python and file again are the same experiment, whatever it holds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from strategies import experiments

from callsheet import Experiment
from callsheet.sdk import Container, Role
from callsheet.spec import experiment as model


def fluently(spec: model.Experiment) -> Experiment:
    """The experiment made by calling what people call."""
    metadata = {name: getattr(spec.metadata, name) for name in spec.metadata.model_fields_set - {"name"}}
    exp = Experiment(spec.name, **metadata)
    given = _given(spec.spec, "roles")
    for variable in given.pop("env", []):
        exp.env({variable.name: variable.value if variable.value_from is None else variable.value_from})
    for name, text in given.pop("files", {}).items():
        exp.file(name, text)
    for volume in given.pop("volumes", []):
        exp.volume(volume.name, **_given(volume, "name"))
    if "lifecycle" in given:
        exp.lifecycle(**_given(given.pop("lifecycle")))
    exp.set(**given)
    for role in spec.spec.roles:
        _role(exp.role(role.name), role)
    return exp


def _given(part: Any, *but: str) -> dict[str, Any]:
    return {name: getattr(part, name) for name in part.model_fields_set - set(but)}


def _role(made: Role, spec: model.Role) -> None:
    given = _given(spec, "name", "containers")
    if "scale" in given:
        made.scale(**_given(given.pop("scale")))
    if "restart" in given:
        made.restart(**_given(given.pop("restart")))
    if "termination_grace_period" in given:
        made.grace(given.pop("termination_grace_period"))
    made.node_selector(given.pop("node_selector", {}))
    made.labels(given.pop("labels", {})).annotations(given.pop("annotations", {}))
    made.image_pull_secrets(*(secret.name for secret in given.pop("image_pull_secrets", [])))
    for toleration in given.pop("tolerations", []):
        made.toleration(**_given(toleration))
    for container in spec.containers:
        _fill(made.container(container.name), _given(container, "name"))
    _fill(made, given)


def _fill(made: Role | Container, given: dict[str, Any]) -> None:
    for bind in given.pop("binds", []):
        made.binds(bind.name) if bind.port is None else made.binds({bind.name: bind.port})
    for expose in given.pop("exposes", []):
        made.exposes({expose.name: expose.port}, **_given(expose, "name", "port"))
    made.connects(*given.pop("connects", []))
    for variable in given.pop("env", []):
        made.env({variable.name: variable.value if variable.value_from is None else variable.value_from})
    for source in given.pop("env_from", []):
        made.env_from(secret=source.secret_ref.name)
    if "resources" in given:
        resources = given.pop("resources")
        made.resource_request(**resources.requests).resource_limit(**resources.limits)
    for mount in given.pop("volume_mounts", []):
        made.mount(mount.name, mount.mount_path)
    if "readiness_probe" in given:
        made.ready_when(**_given(given.pop("readiness_probe")))
    made.set(**given)


@given(experiments())
def test_a_file_read_into_python_and_written_again_is_the_same_experiment(spec: model.Experiment) -> None:
    text = Experiment.from_spec(spec).validate().to_yaml()
    again = Experiment.from_yaml(text)

    assert again.spec == spec
    assert again.to_yaml() == text


@given(experiments())
@pytest.mark.long
def test_the_fluent_calls_reach_every_field(spec: model.Experiment) -> None:
    exp = fluently(spec)

    assert exp.spec == spec
    assert Experiment.from_yaml(exp.to_yaml()).spec == spec
