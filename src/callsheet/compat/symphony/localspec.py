"""What Symphony's processes of one machine share: tmux windows, subprocesses, docker-compose services.

Callsheet runs all three as supervised processes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from callsheet.compat.symphony.spec import ProcessSpec


class LocalProcessSpec(ProcessSpec, ABC):
    """A process of this machine."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.env: dict[str, str] = {}

    def set_env(self, name: str, value: Any) -> None:
        """Set an environment variable."""
        self.env[str(name)] = str(value)

    def set_envs(self, di: Mapping[str, Any]) -> None:
        """Set environment variables."""
        for name, value in di.items():
            self.set_env(name, value)

    @abstractmethod
    def command(self) -> list[str]:
        """Program and arguments."""

    def container_fields(self) -> dict[str, Any]:
        env = [{"name": name, "value": value} for name, value in self.env.items()]
        return {"command": self.command()} | ({"env": env} if env else {})

    def dump_dict(self) -> dict[str, Any]:
        return super().dump_dict() | {"env": dict(self.env)}

    def _load_dict(self, di: dict[str, Any]) -> None:
        super()._load_dict(di)
        self.set_envs(di["env"])
