"""A running experiment planned again: another size, or one more member."""

from __future__ import annotations

import json
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from callsheet import contract
from callsheet.backends.base import Status
from callsheet.backends.local.addresses import SPARE
from callsheet.backends.local.rules import make_rules
from callsheet.backends.local.supervisor.files import Layout
from callsheet.errors import UserError
from callsheet.plan.model import Plan
from callsheet.plan.resolve import resolve
from callsheet.spec.experiment import Experiment, Role


def launch_file(layout: Layout) -> Path:
    """What a run was started with: the experiment and the options of its address rules."""
    return layout.private / "launch.json"


def _load(layout: Layout) -> tuple[Experiment, dict[str, Any]]:
    data = json.loads(launch_file(layout).read_text(encoding="utf-8"))
    return Experiment.model_validate(data["experiment"]), data["rules"]


def _role(experiment: Experiment, name: str) -> Role:
    roles = {role.name: role for role in experiment.spec.roles}
    if name not in roles:
        close = get_close_matches(name, roles, n=1)
        fix = f"did you mean {close[0]!r}?" if close else f"choose one of: {', '.join(roles)}"
        raise UserError(f"the experiment has no role {name!r}", fix=fix)
    return roles[name]


def _sizes(status: Status) -> tuple[dict[str, int], dict[str, list[int]]]:
    joined = {
        role.name: [r.index for r in status.replicas if r.joined and r.role == role.name]
        for role in status.roles
    }
    return {role.name: role.wanted - len(joined[role.name]) for role in status.roles}, joined


def replan_scaled(layout: Layout, status: Status, replicas: Mapping[str, int]) -> Plan:
    """The plan with other sizes of elastic roles."""
    experiment, options = _load(layout)
    for name, count in replicas.items():
        role = _role(experiment, name)
        if role.scale is None:
            fix = f"make it elastic in the file, `scale: {{min: 1, max: {max(count, role.replicas)}}}`, and run it again"
            raise UserError(f"the role {name!r} has a fixed size of {role.replicas}", fix=fix)
        if not role.scale.min <= count <= role.scale.max:
            bounds = f"from {role.scale.min} to {role.scale.max}"
            raise UserError(
                f"{name}={count} is out of bounds", fix=f"choose a number {bounds}, or change `scale`"
            )
    sizes, joined = _sizes(status)
    rules = make_rules(experiment, layout, options)
    return resolve(experiment, rules, status.run, replicas=sizes | dict(replicas), joined=joined)


def replan_joined(layout: Layout, status: Status, name: str) -> tuple[Plan, int, dict[str, str]]:
    """The plan with one more member: its index and its environment."""
    experiment, options = _load(layout)
    role = _role(experiment, name)
    sizes, joined = _sizes(status)
    index = next(i for i in range(role.most, role.most + SPARE + 1) if i not in joined[name])
    if index == role.most + SPARE:
        raise UserError(f"{SPARE} members of {name!r} have joined by hand already", fix="end one of them")
    members = {**joined, name: [*joined[name], index]}
    plan = resolve(
        experiment, make_rules(experiment, layout, options), status.run, replicas=sizes, joined=members
    )
    planned = plan.role(name)
    replica = planned.replicas[-1]
    return plan, index, plan.environment(planned, replica, 0) | {contract.ATTEMPT: "0"}
