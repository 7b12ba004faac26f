"""From an experiment to its plan. Pure: no clock, no file, no network; the same input gives the same plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from callsheet.plan.addressing import Addressing
from callsheet.plan.container import ContainerPlanner, Context
from callsheet.plan.endpoints import Endpoint, endpoints
from callsheet.plan.model import Plan, Replica, RolePlan
from callsheet.spec.experiment import Experiment, Role
from callsheet.spec.quantity import parse_duration


def resolve(
    experiment: Experiment,
    addressing: Addressing,
    run: str,
    *,
    replicas: Mapping[str, int] | None = None,
    joined: Mapping[str, Sequence[int]] | None = None,
) -> Plan:
    """The plan of a checked experiment. `replicas`: current sizes of elastic roles; `joined`: indexes of members
    that people started by hand."""
    spec = experiment.spec
    indexes = {
        role.name: [
            *range((replicas or {}).get(role.name, role.replicas)),
            *(joined or {}).get(role.name, ()),
        ]
        for role in spec.roles
    }
    table = endpoints(experiment, addressing, indexes)
    context = Context(experiment, addressing, run, table, indexes)
    lifecycle = spec.lifecycle
    return Plan(
        experiment=experiment.name,
        run=run,
        workdir=addressing.workdir,
        storage=addressing.storage,
        roles=tuple(_role(role, context) for role in spec.roles),
        success=tuple(lifecycle.success),
        max_restarts=lifecycle.max_restarts,
        deadline=parse_duration(lifecycle.deadline) if lifecycle.deadline else None,
        address_book=address_book(experiment, run, table, addressing, indexes),
        files=dict(spec.files),
    )


def address_book(
    experiment: Experiment,
    run: str,
    table: Mapping[str, Endpoint],
    addressing: Addressing,
    indexes: Mapping[str, Sequence[int]],
) -> dict[str, Any]:
    """What the address file holds: every role's hosts and every endpoint's addresses, in index order."""
    return {
        "experiment": experiment.name,
        "run": run,
        "roles": {
            name: {
                "replicas": len(members),
                "indexes": list(members),
                "hosts": [addressing.host(name, i) for i in members],
            }
            for name, members in indexes.items()
        },
        "endpoints": {
            e.name: {
                "role": e.role,
                "container": e.container,
                "port": e.port,
                "addresses": list(e.addresses) if e.replicas else [],
            }
            for e in table.values()
        },
    }


def _role(role: Role, context: Context) -> RolePlan:
    containers = [ContainerPlanner(context, role, container) for container in role.group]
    return RolePlan(
        name=role.name,
        policy=role.restart.policy,
        limit=role.restart.limit,
        grace=parse_duration(role.termination_grace_period),
        containers=tuple(c.shared() for c in containers),
        replicas=tuple(
            Replica(
                index=index,
                host=context.addressing.host(role.name, index),
                containers=tuple(c.own(index) for c in containers),
            )
            for index in context.indexes[role.name]
        ),
        elastic=(role.scale.min, role.scale.max) if role.scale else None,
        template=tuple(c.template() for c in containers) if context.addressing.template else (),
    )
