"""The same file gives the same names, ports, environment and files on a laptop and in a cluster (the first promise).

Every difference that there is stands in this file, by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from cluster_runs import begin, cloud, experiment, folder
from kubectl import Kube

from callsheet.backends.base import LogLine, backend
from callsheet.backends.kubernetes.run import KubernetesRun

__all__ = ["begin", "cloud", "folder"]

DUMP = """
import json, os, sys
kept = {k: v for k, v in os.environ.items() if k.startswith("CALLSHEET_") or k.startswith("MINE_")}
with open(os.environ["CALLSHEET_ADDRESSES"]) as file:
    book = json.load(file)
with open(sys.argv[1]) as file:
    injected = file.read()
has_key = len(open(os.path.join(os.environ["CALLSHEET_KEYS"], "run.key"), "rb").read())
print(json.dumps({"env": kept, "book": book, "args": sys.argv[2:], "file": injected, "key": has_key,
                  "cwd": sorted(n for n in os.listdir(".") if not n.startswith(".."))}), flush=True)
import time
time.sleep(600)
"""
PATHS = {"CALLSHEET_ADDRESSES", "CALLSHEET_KEYS"}
"""Variables that hold a path: where a file lies is the backend's own business."""
OWN = {"CALLSHEET_RUN"}
"""What differs from run to run."""
ON_A_LAPTOP_ALONE = {"CALLSHEET_STORAGE"}
"""Without `storage` in the file results go to `runs/` on a laptop, and nowhere in a cluster."""

Dump = dict[str, Any]


def roles() -> list[dict[str, Any]]:
    dump = ["python3", "-c", DUMP, "{files.config.json}"]
    probe = {"exec": {"command": ["true"]}}
    mine = [
        {"name": "MINE_NAME", "value": "{role}-{index} of {replicas}"},
        {"name": "MINE_BRACES", "value": '{"a": 1} $(HOME) {{index}} $$ ${index} $'},
        {"name": "MINE_ANY", "value": "{data.port}"},
    ]
    return [
        {
            "name": "learner",
            "command": [*dump, "{data.bind}", "{replicas}"],
            "binds": [{"name": "data", "port": 9999}],
            "exposes": [{"name": "board"}],
            "connects": [],
            "env": mine,
            "readinessProbe": probe,
        },
        {
            "name": "actor",
            "replicas": 3,
            "command": [*dump, "{data.addr}", "{index}", "{serve.all}"],
            "connects": ["data", "serve"],
            "env": mine,
        },
        {
            "name": "group",
            "replicas": 2,
            "containers": [
                {"name": "policy", "command": dump, "connects": ["frames", "data"]},
                {
                    "name": "sim",
                    "command": dump,
                    "binds": [{"name": "frames"}],
                    "readinessProbe": probe,
                },
            ],
        },
        {
            "name": "server",
            "replicas": 3,
            "command": dump,
            "binds": [{"name": "serve", "port": 7000}],
            "restart": {"policy": "Always"},
            "readinessProbe": probe,
        },
    ]


def spec() -> dict[str, Any]:
    return {
        "files": {"config.json": '{"depth": 3}'},
        "env": [{"name": "MINE_EVERYWHERE", "value": "{experiment}"}],
    }


def dumps(lines: Iterable[LogLine]) -> dict[str, Dump]:
    return {f"{line.role}/{line.index}/{line.container}": json.loads(line.text) for line in lines}


@pytest.fixture
def both(
    begin: Callable[..., KubernetesRun], namespace: Kube, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[dict[str, Dump], dict[str, Dump]]:
    """What each container saw, on a laptop and in the cluster."""
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    (folder / "code" / "helper.py").write_text("x = 1\n")
    local = backend("local").start(experiment(*roles(), **spec()), base=folder / "code")
    wait_for(lambda: local.logs(), 3 + 1 + 2 * 2 + 3)
    there = begin(*roles(), detach=True, **spec())
    wait_for(lambda: there.logs(), 3 + 1 + 2 * 2 + 3)
    local.stop(kill=True)
    local.wait(20)
    return dumps(local.logs()), dumps(there.logs())


def wait_for(read: Callable[[], Iterable[LogLine]], count: int) -> None:
    from kubectl import eventually

    eventually(lambda: len(list(read())) >= count, 240)


def translated(value: Any, hosts: dict[str, str]) -> Any:
    """A laptop's value with the cluster's hosts in it."""
    text = json.dumps(value)
    for here, there in sorted(hosts.items(), key=lambda pair: -len(pair[0])):
        text = text.replace(here, there)
    return json.loads(text)


def test_every_process_sees_the_same_on_both_backends(
    both: tuple[dict[str, Dump], dict[str, Dump]],
) -> None:
    laptop, cluster = both
    assert set(laptop) == set(cluster)
    books = next(iter(laptop.values()))["book"], next(iter(cluster.values()))["book"]
    hosts = {
        here: there
        for role in books[0]["roles"]
        for here, there in zip(
            books[0]["roles"][role]["hosts"], books[1]["roles"][role]["hosts"], strict=True
        )
    }
    for name, seen in laptop.items():
        other = cluster[name]
        env = translated(seen["env"], hosts)
        expected = {key: value for key, value in env.items() if key not in PATHS | OWN | ON_A_LAPTOP_ALONE}
        found = {key: value for key, value in other["env"].items() if key not in PATHS | OWN}
        for key in [key for key in expected if key.endswith("_BIND")]:
            # A pod listens on all of its addresses, and has only its own.
            assert found.pop(key) == f"0.0.0.0:{expected.pop(key).rpartition(':')[2]}"
        assert found == expected, name
        assert set(other["env"]) >= PATHS | OWN
        book = translated(seen["book"], hosts)
        assert {k: v for k, v in other["book"].items() if k != "run"} == {
            k: v for k, v in book.items() if k != "run"
        }
        for key in ("file", "key", "cwd"):
            assert other[key] == seen[key], (name, key)
        mine, theirs = translated(seen["args"], hosts), list(other["args"])
        if name.startswith("learner"):
            assert theirs.pop(0) == "0.0.0.0:9999"
            mine.pop(0)
        assert theirs == mine, name
