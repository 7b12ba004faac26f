"""Which sizes a role may be scaled to while it runs: the same rules on every backend."""

from __future__ import annotations

from collections.abc import Mapping

from callsheet.errors import UserError, did_you_mean
from callsheet.spec.experiment import Experiment, Role


def find_role(experiment: Experiment, name: str) -> Role:
    """The role of that name."""
    roles = {role.name: role for role in experiment.spec.roles}
    if name not in roles:
        fix = did_you_mean(name, roles, f"choose one of: {', '.join(roles)}")
        raise UserError(f"the experiment has no role {name!r}", fix=fix)
    return roles[name]


def check_sizes(experiment: Experiment, replicas: Mapping[str, int]) -> None:
    """Raise if the file does not allow a size."""
    for name, count in replicas.items():
        role = find_role(experiment, name)
        if role.scale is None:
            fix = f"make it elastic in the file, `scale: {{min: 1, max: {max(count, role.replicas)}}}`, and run it again"
            raise UserError(f"the role {name!r} has a fixed size of {role.replicas}", fix=fix)
        if not role.scale.min <= count <= role.scale.max:
            bounds = f"from {role.scale.min} to {role.scale.max}"
            raise UserError(
                f"{name}={count} is out of range", fix=f"choose a number {bounds}, or change `scale`"
            )
