"""An experiment in Python, equal to the file: build it call by call, check it, run it."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self, Unpack

from callsheet.backends.base import Run, backend
from callsheet.errors import InvalidExperiment, UserError
from callsheet.plan.check import check_experiment
from callsheet.plan.load import Loaded, load
from callsheet.sdk import values
from callsheet.sdk.options import EnvValue, ExperimentOptions, LifecycleOptions, RoleOptions, VolumeOptions
from callsheet.sdk.role import Role
from callsheet.spec import experiment as model
from callsheet.spec import kubernetes
from callsheet.spec.dump import to_yaml

if TYPE_CHECKING:
    from callsheet.plan.model import Plan

BACKEND_VARIABLE = "CALLSHEET_ON"


class Experiment:
    """Roles wired by named endpoints.

    ``workdir`` is relative to the folder of the Python file that creates the experiment, as it is relative to the
    experiment file. `base` sets another folder.
    """

    def __init__(
        self,
        name: str,
        *,
        namespace: str | None = None,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        base: str | Path | None = None,
        **fields: Unpack[ExperimentOptions],
    ) -> None:
        metadata = {"name": name, "namespace": namespace, "labels": labels, "annotations": annotations}
        given = {key: value for key, value in metadata.items() if value is not None}
        self._metadata = values.checked(model.Metadata, values.normal(given, "metadata"), "metadata")
        self._fields: dict[str, Any] = {}
        self._roles: list[Role] = []
        self._base = Path(base) if base is not None else calling_folder()
        self.set(**fields)

    @classmethod
    def from_spec(cls, spec: model.Experiment, *, base: str | Path | None = None) -> Experiment:
        """A builder that starts from checked data."""
        made = cls(spec.name, base=base)
        made._metadata = spec.metadata
        made._fields = values.fields_of(spec.spec, {"roles"})
        made._roles = [Role.from_spec(role) for role in spec.spec.roles]
        return made

    @classmethod
    def from_file(cls, path: str | Path) -> Experiment:
        """The one experiment in a file."""
        loaded = _only(load([os.fspath(path)]), os.fspath(path))
        return cls.from_spec(loaded.experiment, base=loaded.base)

    @classmethod
    def from_yaml(cls, text: str, *, base: str | Path | None = None) -> Experiment:
        """The one experiment in a text."""
        loaded = _only(load(["-"], stdin=io.StringIO(text)), "the text")
        return cls.from_spec(loaded.experiment, base=base)

    @property
    def name(self) -> str:
        """The experiment's name."""
        return self._metadata.name

    @property
    def base(self) -> Path:
        """The folder that `workdir` is relative to."""
        return self._base

    @property
    def roles(self) -> Mapping[str, Role]:
        """The roles by name: ``exp.roles["actor"].scale(2, 64)``."""
        return MappingProxyType({role.name: role for role in self._roles})

    def role(self, name: str, **fields: Unpack[RoleOptions]) -> Role:
        """Add a role. Any field of the schema may be set here or later."""
        if name in self.roles:
            raise UserError(
                f"experiment {self.name!r} already has a role {name!r}",
                fix=f"choose another name, or change it with exp.roles[{name!r}]",
            )
        made = Role(name, fields)
        self._roles.append(made)
        return made

    def set(self, **fields: Unpack[ExperimentOptions]) -> Self:
        """Set any field of the experiment."""
        self._fields = self._checked(values.normal(fields, "spec"))
        return self

    def env(self, given: Mapping[str, EnvValue] | None = None, /, **more: EnvValue) -> Self:
        """Environment variables of all containers. A container's own override them."""
        new = values.env({**(given or {}), **more}, "spec")
        return self.set(env=values.merged(self._fields.get("env", []), new))

    def file(self, name: str, text: str) -> Self:
        """Give all containers a small file. Its path is ``{files.NAME}``."""
        return self.set(files={**self._fields.get("files", {}), name: text})

    def volume(self, name: str, **kind: Unpack[VolumeOptions]) -> Self:
        """Declare a volume for `mount`: ``exp.volume("data", host_path={"path": "/data"})``."""
        new = values.checked(
            kubernetes.Volume, {"name": name} | values.normal(kind, "spec"), f"spec.volumes[{name}]"
        )
        return self.set(volumes=values.merged(self._fields.get("volumes", []), [new]))

    def lifecycle(self, **fields: Unpack[LifecycleOptions]) -> Self:
        """When the run ends, and what happens then: ``exp.lifecycle(success=["learner"], deadline="1h")``."""
        old = self._fields.get("lifecycle", model.Lifecycle())
        return self.set(lifecycle=values.fields_of(old) | dict(fields))

    def _checked(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """All fields with the new ones, checked; roles are checked on their own."""
        placeholder = model.Role.model_construct(name="placeholder")
        spec = values.checked(
            model.ExperimentSpec, {**self._fields, **fields, "roles": [placeholder]}, "spec"
        )
        return values.fields_of(spec, {"roles"})

    @property
    def spec(self) -> model.Experiment:
        """The experiment as typed data, each part checked on its own."""
        roles = [role.spec for role in self._roles]
        if not roles:
            raise UserError(
                f"experiment {self.name!r} has no role", fix='add one with exp.role("learner", ...)'
            )
        spec = values.checked(model.ExperimentSpec, {**self._fields, "roles": roles}, "spec")
        return model.Experiment(metadata=self._metadata, spec=spec)

    def validate(self) -> Self:
        """Raise `InvalidExperiment` with every mistake, if there is any."""
        problems = check_experiment(self.spec)
        if problems:
            raise InvalidExperiment(problems)
        return self

    def to_yaml(self) -> str:
        """The same experiment as a file's text."""
        return to_yaml(self.spec)

    def plan(self, on: str | None = None) -> Plan:
        """Every replica with its command, environment and addresses. Nothing is started."""
        return backend(on or default_backend()).plan(self.validate().spec, base=self._base)

    def render(self, on: str | None = None) -> str:
        """What the backend would create, as YAML. Nothing is started and no cluster is asked."""
        return backend(on or default_backend()).render(self.validate().spec, base=self._base)

    def run(self, on: str | None = None, *, detach: bool = False) -> Run:
        """Start it and return a handle at once; ``run.wait()`` waits for the end.

        It runs on this machine unless `on` or the variable CALLSHEET_ON names another backend. Unless detached, it
        stops when this process ends.
        """
        spec = self.validate().spec
        return backend(on or default_backend()).start(
            spec, base=self._base, source=to_yaml(spec), detach=detach
        )


def _only(loaded: list[Loaded], source: str) -> Loaded:
    if len(loaded) != 1:
        raise UserError(f"{source} contains {len(loaded)} experiments", fix="keep one experiment in it")
    return loaded[0]


def default_backend(otherwise: str = "local") -> str:
    """The backend that CALLSHEET_ON names, or `otherwise`."""
    return os.environ.get(BACKEND_VARIABLE) or otherwise


def calling_folder() -> Path:
    """The folder of the first file up the stack that is not Callsheet's own; the current one in a console."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "callsheet":
        frame = frame.f_back
    file = frame.f_globals.get("__file__")
    return Path(file).resolve().parent if file else Path.cwd()
