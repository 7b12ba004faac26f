"""The chainable calls that a container and a one-container role share.

Each call checks its arguments and returns the builder, so that a mistake is reported on the line that made it.
`Experiment.validate` finds what only the whole experiment can tell, such as an endpoint that nobody binds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, Literal, Self, TypeVar

from callsheet.errors import UserError
from callsheet.sdk import values
from callsheet.sdk.options import EnvValue, FieldMapping, Ports
from callsheet.spec import experiment as model
from callsheet.spec import kubernetes

M = TypeVar("M", model.Container, model.Role)


class Fluent(Generic[M]):
    """The calls that a container and a one-container role share."""

    _model: M
    _where: str

    @property
    def name(self) -> str:
        """Its name."""
        return self._model.name

    def _change(self, **fields: Any) -> Self:
        """Replace fields, checked. Models are frozen: whoever holds the old one keeps it unchanged."""
        both = values.fields_of(self._model) | values.normal(fields, self._where)
        self._model = values.checked(type(self._model), both, self._where)
        return self

    def binds(self, *names: Ports, **ports: int | None) -> Self:
        """Listen on endpoints: ``binds("a", "b")``, ``binds(a=9999)``, ``binds({"a": 9999, "b": None})``."""
        new = values.endpoints(model.Bind, f"{self._where}.binds", [*names, ports])
        return self._change(binds=values.merged(self._model.binds, new))

    def connects(self, *names: str) -> Self:
        """Connect to endpoints that others bind."""
        return self._change(connects=list(dict.fromkeys([*self._model.connects, *names])))

    def exposes(
        self,
        *names: Ports,
        type: Literal["PortForward", "NodePort", "LoadBalancer", "Ingress"] | None = None,
        host: str | None = None,
        **ports: int | None,
    ) -> Self:
        """Listen on endpoints for people outside the experiment, such as a web page."""
        more = {key: value for key, value in (("type", type), ("host", host)) if value is not None}
        new = values.endpoints(model.Expose, f"{self._where}.exposes", [*names, ports], **more)
        return self._change(exposes=values.merged(self._model.exposes, new))

    def env(self, given: Mapping[str, EnvValue] | None = None, /, **more: EnvValue) -> Self:
        """Set environment variables. A value may also be an `EnvSource`, such as a Secret's key."""
        return self._change(
            env=values.merged(self._model.env, values.env({**(given or {}), **more}, self._where))
        )

    def env_from(
        self,
        *,
        config_map: str | None = None,
        secret: str | None = None,
        prefix: str = "",
        optional: bool = False,
    ) -> Self:
        """Turn all keys of a ConfigMap or a Secret into variables."""
        if (config_map is None) == (secret is None):
            raise UserError(
                "env_from takes one source", fix='write env_from(secret="NAME") or config_map="NAME"'
            )
        name, key = (config_map, "config_map_ref") if config_map is not None else (secret, "secret_ref")
        reference = {"name": name} | ({"optional": True} if optional else {})
        source = {key: reference} | ({"prefix": prefix} if prefix else {})
        return self._change(env_from=[*self._model.env_from, source])

    def resource_request(
        self, cpu: float | str | None = None, memory: int | str | None = None, **more: float | str
    ) -> Self:
        """What the scheduler reserves: ``resource_request(cpu=1.5, memory="2G")``."""
        return self._resources("requests", {"cpu": cpu, "memory": memory, **more})

    def resource_limit(
        self,
        cpu: float | str | None = None,
        memory: int | str | None = None,
        gpu: int | str | None = None,
        **more: float | str,
    ) -> Self:
        """What it may use at most; `gpu` is ``nvidia.com/gpu``, other devices go as ``**{"amd.com/gpu": 1}``."""
        return self._resources("limits", {"cpu": cpu, "memory": memory, "nvidia.com/gpu": gpu, **more})

    def _resources(self, key: Literal["requests", "limits"], given: Mapping[str, Any]) -> Self:
        old = self._model.resources
        both = {**getattr(old, key), **values.resources(given)}
        return self._change(resources=values.fields_of(old) | {key: both})

    def mount(self, volume: str, path: str, *, sub_path: str = "", read_only: bool = False) -> Self:
        """Mount a volume of the experiment at a path. ``{mounts.NAME}`` is its path on every backend."""
        more = ({"sub_path": sub_path} if sub_path else {}) | ({"read_only": True} if read_only else {})
        mount = {"name": volume, "mount_path": path, **more}
        return self._change(volume_mounts=[*self._model.volume_mounts, mount])

    def ready_when(
        self,
        *,
        http_get: kubernetes.HTTPGetAction | FieldMapping | None = None,
        tcp_socket: kubernetes.TCPSocketAction | FieldMapping | None = None,
        exec: kubernetes.ExecAction | FieldMapping | None = None,
        **more: int,
    ) -> Self:
        """How to tell that it is ready: ``ready_when(http_get={"port": "web"}, period_seconds=2)``."""
        actions = {"http_get": http_get, "tcp_socket": tcp_socket, "exec": exec}
        probe = {name: value for name, value in actions.items() if value is not None}
        return self._change(readiness_probe=probe | more)
