"""One lifecycle: whatever happens to a run, the supervisor and an attached client on Kubernetes say the same of it."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from lifecycle_drivers import Attached, Clock, Local

from callsheet.backends.status import Status
from callsheet.spec.experiment import Experiment

CODES = st.sampled_from([0, 0, 1, 3, 78, -9])
POLICIES = st.sampled_from(["OnFailure", "OnFailure", "Never", "Always"])
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(
            ["ready", "ready", "exit", "exit", "sidecar", "restart", "retry", "scale", "wait", "stop"]
        ),
        st.integers(0, 9),
        CODES,
    ),
    max_size=25,
)


@st.composite
def experiments(draw: st.DrawFn) -> Experiment:
    roles = []
    for number, name in enumerate(("learner", "actor", "pair")[: draw(st.integers(1, 3))]):
        policy = draw(POLICIES)
        role: dict[str, Any] = {
            "name": name,
            "replicas": draw(st.integers(0, 2)),
            "scale": {"min": 0, "max": 3},
            "restart": {"policy": policy, "limit": draw(st.integers(0, 2))},
        }
        main = {"command": ["run"], "binds": [{"name": f"port-{name}", "port": 7000 + number}]}
        beside = [{"name": "main", **main}, {"name": "beside", "command": ["run"]}]
        roles.append(role | ({"containers": beside} if name == "pair" else main))
    can_end = [role["name"] for role in roles if role["restart"]["policy"] != "Always"]
    lifecycle: dict[str, Any] = {
        "success": draw(st.lists(st.sampled_from(can_end), unique=True)) if can_end else [],
        "maxRestarts": draw(st.one_of(st.none(), st.integers(0, 3))),
        "deadline": draw(st.sampled_from([None, "1h"])),
    }
    spec = {
        "image": "x",
        "roles": roles,
        "lifecycle": {key: value for key, value in lifecycle.items() if value is not None},
    }
    return Experiment.model_validate({"metadata": {"name": "exp"}, "spec": spec})


class Story:
    """One history, told by both."""

    def __init__(self, experiment: Experiment) -> None:
        self.clock = Clock()
        self.drivers = Local(experiment, self.clock), Attached(experiment, self.clock)
        self.status = self.compare()

    def compare(self) -> Status:
        local, attached = (driver.status() for driver in self.drivers)
        assert told(local) == told(attached)
        return local

    def happen(self, kind: str, choice: int, code: int) -> None:
        up = [r for r in self.status.replicas if r.phase in ("Starting", "Running")]
        if kind in ("ready", "exit", "sidecar", "restart"):
            candidates = [r for r in up if kind != "ready" or not r.containers[0].ready]
            candidates = [
                r
                for r in candidates
                if kind != "sidecar" or (len(r.containers) > 1 and r.containers[-1].pid != 0)
            ]
            if not candidates:
                return
            chosen = candidates[choice % len(candidates)]
            for driver in self.drivers:
                if kind == "ready":
                    driver.become_ready(chosen.role, chosen.index)
                elif kind == "restart":
                    driver.restart(chosen.role, chosen.index)
                else:
                    driver.exit(chosen.role, chosen.index, code, int(kind == "sidecar"))
        elif kind == "scale":
            # A Job that has counted an index as done cannot be given another size in every way.
            roles = [role for role in self.status.roles if not role.succeeded]
            if roles:
                role = roles[choice % len(roles)]
                for driver in self.drivers:
                    driver.scale(role.name, (choice + role.wanted) % 4)
        elif kind == "wait":
            for driver in self.drivers:
                driver.retry()
            self.status = self.compare()
            self.clock.now += 1801.0
            for driver in self.drivers:
                driver.advance()
        else:
            for driver in self.drivers:
                getattr(driver, kind)()
        self.status = self.compare()


def told(status: Status) -> dict[str, Any]:
    """What everyone must agree on. Reasons while a replica waits name a delay, or a new pod, after the semicolon."""
    return {
        "phase": status.phase,
        "reason": status.reason,
        "exit code": status.exit_code,
        "restarts": status.restarts,
        "roles": [(r.name, r.wanted, r.ready, r.succeeded, r.failed, r.restarts) for r in status.roles],
        "replicas": [
            (r.name, r.phase, r.restarts, r.reason if r.phase in ("Failed", "Succeeded", "Stopped") else "")
            for r in sorted(status.replicas, key=lambda r: r.name)
        ],
    }


@settings(max_examples=200, deadline=None)
@given(experiments(), EVENTS)
def test_both_backends_agree_on_phases_counts_outcomes_and_reasons(
    experiment: Experiment, events: list[tuple[str, int, int]]
) -> None:
    story = Story(experiment)
    for event in events:
        if story.status.done:
            break
        story.happen(*event)
