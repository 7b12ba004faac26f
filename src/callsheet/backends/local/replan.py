"""A running experiment planned again: another size, or one more member."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from callsheet.backends.base import Status
from callsheet.backends.local.addressing import make_addressing
from callsheet.backends.local.loopback import SPARE
from callsheet.backends.local.supervisor.files import Layout
from callsheet.backends.scaling import check_sizes, find_role
from callsheet.errors import UserError
from callsheet.plan.model import Plan
from callsheet.plan.resolve import resolve
from callsheet.spec.experiment import Experiment


def launch_file(layout: Layout) -> Path:
    """What a run was started with: the experiment and the options of its addressing."""
    return layout.private / "launch.json"


def _load(layout: Layout) -> tuple[Experiment, dict[str, Any]]:
    data = json.loads(launch_file(layout).read_text(encoding="utf-8"))
    return Experiment.model_validate(data["experiment"]), data["rules"]


def _sizes(status: Status) -> tuple[dict[str, int], dict[str, list[int]]]:
    joined = {
        role.name: [r.index for r in status.replicas if r.joined and r.role == role.name]
        for role in status.roles
    }
    return {role.name: role.wanted - len(joined[role.name]) for role in status.roles}, joined


def replan_scaled(layout: Layout, status: Status, replicas: Mapping[str, int]) -> Plan:
    """The plan with other sizes of elastic roles."""
    experiment, options = _load(layout)
    check_sizes(experiment, replicas)
    sizes, joined = _sizes(status)
    addressing = make_addressing(experiment, layout, options)
    return resolve(experiment, addressing, status.run, replicas=sizes | dict(replicas), joined=joined)


def replan_joined(layout: Layout, status: Status, name: str) -> tuple[Plan, int]:
    """The plan with one more member, the last of its role, and the member's index."""
    experiment, options = _load(layout)
    role = find_role(experiment, name)
    sizes, joined = _sizes(status)
    index = next(i for i in range(role.most, role.most + SPARE + 1) if i not in joined[name])
    if index == role.most + SPARE:
        raise UserError(f"{SPARE} members of {name!r} have joined by hand already", fix="end one of them")
    members = {**joined, name: [*joined[name], index]}
    plan = resolve(
        experiment, make_addressing(experiment, layout, options), status.run, replicas=sizes, joined=members
    )
    return plan, index
