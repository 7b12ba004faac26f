"""The plan: pure, total, the same everywhere, and quick for very many replicas."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from strategies import experiments

from callsheet.backends.local.addressing import LocalAddressing, SharedHostAddressing
from callsheet.backends.local.loopback import blocks_needed
from callsheet.backends.local.supervisor.files import Layout
from callsheet.errors import InvalidExperiment
from callsheet.plan.check import check_experiment
from callsheet.plan.endpoints import chosen_ports
from callsheet.plan.model import Plan, plan_from_data, without_member
from callsheet.plan.resolve import resolve
from callsheet.spec.experiment import Experiment


def experiment(*roles: dict[str, Any], **spec: Any) -> Experiment:
    return Experiment.model_validate({"metadata": {"name": "exp"}, "spec": {"roles": list(roles), **spec}})


def addressing(exp: Experiment, kind: type[LocalAddressing] = LocalAddressing) -> LocalAddressing:
    blocks = [f"127.9.{n}" for n in range(blocks_needed(exp))]
    layout = Layout(Path("/runs/exp/run"))
    return kind(exp, layout, "/code", "file:///runs/exp/run", blocks, frozenset())


def plan(exp: Experiment, **options: Any) -> Plan:
    return resolve(exp, addressing(exp), "run", **options)


def env(planned: Plan, role: str, index: int = 0, container: int = 0) -> dict[str, str]:
    of_role = planned.role(role)
    return planned.environment(of_role, of_role.replicas[index], container)


SERVER = {"name": "server", "binds": [{"name": "echo", "port": 9000}], "command": ["serve"]}


def test_addr_is_the_only_replica_that_binds() -> None:
    planned = plan(
        experiment(SERVER, {"name": "actor", "replicas": 3, "connects": ["echo"], "command": ["act"]})
    )
    assert {env(planned, "actor", i)["CALLSHEET_ECHO_ADDR"] for i in range(3)} == {"127.9.0.1:9000"}
    assert "CALLSHEET_ECHO_BIND" not in env(planned, "actor")
    assert env(planned, "server")["CALLSHEET_ECHO_BIND"] == "127.9.0.1:9000"


def test_addr_is_the_one_with_my_index_when_several_bind() -> None:
    servers = {**SERVER, "replicas": 3}
    planned = plan(
        experiment(servers, {"name": "policy", "replicas": 5, "connects": ["echo"], "command": ["act"]})
    )
    everyone = env(planned, "policy")["CALLSHEET_ECHO_ALL"].split(",")
    assert len(everyone) == 3
    assert [env(planned, "policy", i)["CALLSHEET_ECHO_ADDR"] for i in range(5)] == [
        *everyone,
        everyone[0],
        everyone[1],
    ]


def test_addr_is_my_own_pods_copy_when_my_group_binds() -> None:
    group = {
        "name": "pair",
        "replicas": 3,
        "containers": [
            {"name": "policy", "command": ["p"], "connects": ["sim"]},
            {"name": "sim", "command": ["s"], "binds": [{"name": "sim", "port": 1}]},
        ],
    }
    planned = plan(experiment(group))
    for index, replica in enumerate(planned.role("pair").replicas):
        assert env(planned, "pair", index)["CALLSHEET_SIM_ADDR"] == f"{replica.host}:1"


def test_a_role_scaled_to_nothing_keeps_the_address_it_will_have() -> None:
    exp = experiment(
        {**SERVER, "replicas": 0, "scale": {"min": 0, "max": 2}},
        {"name": "actor", "connects": ["echo"], "command": ["act", "{echo.addr}"]},
    )
    planned = plan(exp)
    assert env(planned, "actor")["CALLSHEET_ECHO_ALL"] == ""
    assert env(planned, "actor")["CALLSHEET_ECHO_ADDR"] == "127.9.0.1:9000"
    assert plan(exp, replicas={"server": 1}).role("server").replicas[0].host == "127.9.0.1"
    assert planned.address_book["endpoints"]["echo"]["addresses"] == []


def test_scaling_moves_nobody() -> None:
    exp = experiment(
        {**SERVER, "replicas": 2, "scale": {"min": 1, "max": 9}}, {"name": "actor", "command": ["act"]}
    )
    before, after = plan(exp), plan(exp, replicas={"server": 9})
    assert after.role("server").replicas[:2] == before.role("server").replicas
    assert after.role("actor").replicas == before.role("actor").replicas


def test_a_chosen_port_comes_from_the_name_and_stays_when_others_are_added() -> None:
    def ports(*names: str) -> dict[str, int]:
        binds = [{"name": name} for name in names]
        return chosen_ports(experiment({"name": "server", "command": ["s"], "binds": binds}), frozenset())

    alone = ports("parameters")
    assert ports("parameters", "replay", "zz")["parameters"] == alone["parameters"]
    many = ports(*(f"e{i}" for i in range(500)))
    assert len(set(many.values())) == 500
    assert all(20_000 <= port < 30_000 for port in many.values())


def test_command_and_environment_are_filled_in_for_each_replica() -> None:
    role = {
        "name": "actor",
        "replicas": 2,
        "command": ["act", "--index", "{index}"],
        "args": ["--of", "{replicas}", "{experiment}/{run}/{container}", "{storage}"],
        "env": [{"name": "WHO", "value": "{role}-{index}"}, {"name": "ALL", "value": "{replicas}"}],
    }
    planned = plan(experiment(role))
    second = planned.role("actor").replicas[1].containers[0]
    assert second.command == ("act", "--index", "1", "--of", "2", "exp/run/actor", "file:///runs/exp/run")
    assert second.env["WHO"] == "actor-1"
    assert "ALL" not in second.env, "what is equal in all replicas is stored once"
    assert env(planned, "actor", 1)["ALL"] == "2"


def test_members_that_joined_by_hand_are_in_the_book_and_leave_it() -> None:
    exp = experiment({**SERVER, "replicas": 2})
    planned = plan(exp, joined={"server": [7]})
    assert planned.address_book["roles"]["server"]["indexes"] == [0, 1, 7]
    assert (
        env(planned, "server", 2)["CALLSHEET_ECHO_BIND"] == f"{planned.role('server').replicas[2].host}:9000"
    )
    assert without_member(planned.address_book, "server", 7) == plan(exp).address_book


def test_on_systems_with_one_loopback_address_every_replica_has_its_own_port() -> None:
    exp = experiment(
        {**SERVER, "replicas": 3}, {"name": "actor", "connects": ["echo"], "command": ["{echo.all}"]}
    )
    planned = resolve(exp, addressing(exp, SharedHostAddressing), "run")
    addresses = planned.address_book["endpoints"]["echo"]["addresses"]
    assert len(set(addresses)) == 3
    assert all(address.startswith("127.0.0.1:") for address in addresses)
    assert planned.role("server").replicas[1].containers[0].ports == {"echo": int(addresses[1].split(":")[1])}
    assert env(planned, "server", 1)["CALLSHEET_ECHO_BIND"] == addresses[1]


def test_a_list_of_addresses_too_long_for_a_process_is_left_to_the_address_file() -> None:
    servers = {**SERVER, "replicas": 9_000}
    planned = plan(experiment(servers, {"name": "actor", "connects": ["echo"], "command": ["act"]}))
    assert "CALLSHEET_ECHO_ALL" not in env(planned, "actor")
    assert len(planned.address_book["endpoints"]["echo"]["addresses"]) == 9_000
    asks = experiment(servers, {"name": "actor", "connects": ["echo"], "command": ["act", "{echo.all}"]})
    with pytest.raises(InvalidExperiment, match="CALLSHEET_ADDRESSES"):
        plan(asks)


@pytest.mark.exclusive
def test_10000_replicas_plan_in_less_than_a_second() -> None:
    exp = experiment(
        {**SERVER, "replicas": 100},
        {
            "name": "actor",
            "replicas": 9_900,
            "connects": ["echo"],
            "command": ["act", "--to", "{echo.addr}", "--index", "{index}"],
            "env": [{"name": "WHO", "value": "{role}/{index}"}],
        },
    )
    times = []
    for _ in range(3):
        begun = time.process_time()
        planned = plan(exp)
        times.append(time.process_time() - begun)
    assert sum(len(role.replicas) for role in planned.roles) == 10_000
    assert min(times) < 1.0


@given(experiments())
@pytest.mark.long
def test_every_checked_experiment_has_a_plan_that_survives_json(exp: Experiment) -> None:
    assume(not check_experiment(exp))
    planned = plan(exp)
    assert planned == plan(exp), "the same input gives the same plan"
    assert plan_from_data(json.loads(json.dumps(planned.to_data()))) == planned
