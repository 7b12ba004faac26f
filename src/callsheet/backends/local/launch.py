"""Starting a run on this machine: plan it, check the machine, write its folder, start its supervisor."""

from __future__ import annotations

import contextlib
import json
import os
import random
import secrets
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from callsheet.backends.local import registry, storage
from callsheet.backends.local.addressing import has_loopback_network, make_addressing
from callsheet.backends.local.client import LocalRun
from callsheet.backends.local.loopback import blocks_needed, reserve_blocks
from callsheet.backends.local.preflight import check_machine, machine_gpus
from callsheet.backends.local.replan import launch_file
from callsheet.backends.local.supervisor.files import Layout
from callsheet.backends.local.supervisor.listening import ANY_HOST, listeners
from callsheet.backends.local.supervisor.results import is_remote
from callsheet.backends.run_ids import new_run_id
from callsheet.backends.runs_folder import make_runs_folder, runs_folder
from callsheet.errors import BugError, InvalidExperiment, Problem, UserError
from callsheet.plan.model import Plan
from callsheet.plan.resolve import resolve
from callsheet.spec.dump import to_yaml
from callsheet.spec.experiment import Experiment


def plan(experiment: Experiment, base: Path, sizes: Mapping[str, int] | None = None) -> Plan:
    """The plan, with nothing started; its addresses are placeholders for those that a run would reserve."""
    layout = Layout(_results_root(experiment) / experiment.name / "RUN")
    count = blocks_needed(experiment) if has_loopback_network() else 0
    blocks = [f"127.{1 + n // 256}.{n % 256}" for n in range(1, count + 1)]
    options = _options(experiment, layout, base, blocks)
    return resolve(
        experiment, make_addressing(experiment, layout, options), layout.folder.name, replicas=sizes
    )


def check(experiment: Experiment, base: Path) -> None:
    """Raise if this machine cannot run it; starts nothing."""
    planned = plan(experiment, base)
    _refuse(check_machine(experiment, planned, _with_one_of_each(experiment, base, planned), _gpus(planned)))
    storage.check(planned.storage)


def _with_one_of_each(experiment: Experiment, base: Path, planned: Plan) -> Plan:
    """The plan with at least one replica per role: a role that is scaled up later must be able to start too."""
    if all(role.replicas for role in planned.roles):
        return planned
    sizes = {role.name: max(1, role.replicas) for role in experiment.spec.roles}
    return plan(experiment, base, sizes)


def _gpus(planned: Plan) -> list[str]:
    return machine_gpus() if any(c.gpus for role in planned.roles for c in role.containers) else []


def _refuse(problems: list[Problem]) -> None:
    if problems:
        raise InvalidExperiment(problems)


def launch(experiment: Experiment, base: Path, source: str, *, detach: bool) -> LocalRun:
    """Start a run; if that fails, nothing is left behind."""
    run = new_run_id()
    layout = Layout(_results_root(experiment) / experiment.name / run)
    loopback = has_loopback_network()
    blocks, reservations = reserve_blocks(blocks_needed(experiment)) if loopback else ([], [])
    try:
        options = _options(experiment, layout, base, blocks)
        planned = resolve(experiment, make_addressing(experiment, layout, options), run)
        gpus = _gpus(planned)
        _refuse(check_machine(experiment, planned, _with_one_of_each(experiment, base, planned), gpus))
        _write_folder(layout, experiment, planned, options, source)
        try:
            storage.begin(planned.storage, layout)
            return _start_supervisor(layout, gpus, reservations, detach=detach)
        except BaseException:
            shutil.rmtree(layout.folder, ignore_errors=True)
            registry.unregister(run)
            raise
    finally:
        for holder in reservations:
            holder.close()


def _results_root(experiment: Experiment) -> Path:
    """The folder above the experiment's own: a `file://` storage, else `runs/` here."""
    place = experiment.spec.storage
    if place and urlsplit(place).scheme == "file":
        return Path(unquote(urlsplit(place).path))
    return runs_folder()


def _options(experiment: Experiment, layout: Layout, base: Path, blocks: list[str]) -> dict[str, Any]:
    """What the addresses and paths of a run depend on; saved with the run, so that it can be planned again."""
    place = experiment.spec.storage
    if place and is_remote(place):
        results = f"{place.rstrip('/')}/{experiment.name}/{layout.folder.name}"
    else:
        results = layout.folder.as_uri()
    return {
        "workdir": str((base / experiment.spec.workdir.path).resolve()),
        "storage": results,
        "blocks": blocks,
        "first_port": random.randrange(20_000, 50_000),  # noqa: S311 - keeps runs apart, no secret
        "avoid": sorted({port for host, port in listeners() if host in ANY_HOST}),
    }


def _write_folder(
    layout: Layout, experiment: Experiment, plan: Plan, options: dict[str, Any], source: str
) -> None:
    """Make the run's folder and register it; all of it or nothing."""
    try:
        if layout.folder.parent.parent == runs_folder():
            make_runs_folder(layout.folder.parent)
        for _ in range(3):  # the parent folder may be removed, being empty, at this moment
            with contextlib.suppress(FileNotFoundError):
                layout.folder.mkdir(parents=True)
                break
        layout.private.mkdir(mode=0o700)
        Path(layout.experiment).write_text(source or to_yaml(experiment), encoding="utf-8")
        Path(layout.plan).write_text(json.dumps(plan.to_data()), encoding="utf-8")
        launch = {"experiment": experiment.model_dump(exclude_unset=True), "rules": options}
        launch_file(layout).write_text(json.dumps(launch), encoding="utf-8")
        _write_key(Path(layout.keys))
        files = Path(layout.files)
        files.mkdir()
        for name, text in plan.files.items():
            (files / name).write_text(text, encoding="utf-8")
        registry.register(layout.folder.name, layout.folder)
    except OSError as error:
        shutil.rmtree(layout.folder, ignore_errors=True)
        place = error.filename or layout.folder
        fix = "run it in a writable folder, or name one with `storage: file:///...`"
        raise UserError(f"cannot write the run's folder: {error.strerror}: {place}", fix=fix) from error


def _write_key(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    key = os.open(folder / "run.key", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.write(key, secrets.token_bytes(32))
    os.close(key)


def _start_supervisor(
    layout: Layout, gpus: list[str], reservations: list[socket.socket], *, detach: bool
) -> LocalRun:
    """Start the supervisor and wait until it reports that the run has started."""
    ready, tell = os.pipe()
    keep_alive, other_end = (None, None) if detach else socket.socketpair()
    descriptors = [
        tell,
        *(holder.fileno() for holder in reservations),
        *([other_end.fileno()] if other_end else []),
    ]
    options = {
        "gpus": gpus,
        "ready": tell,
        "parent": other_end.fileno() if other_end else None,
        "reservations": [holder.fileno() for holder in reservations],
    }
    module = "callsheet.backends.local.supervisor"
    with open(layout.supervisor_log, "wb") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", module, str(layout.folder), json.dumps(options)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=descriptors,
            start_new_session=True,
        )
    os.close(tell)
    if other_end:
        other_end.close()
    answer = _read_answer(ready)
    if "started" not in answer:
        if keep_alive:
            keep_alive.close()
        child.wait()
        text = Path(layout.supervisor_log).read_text(encoding="utf-8", errors="replace").strip()
        if "error" in answer:
            raise UserError(answer["error"], fix=answer["fix"])
        raise BugError(f"the supervisor did not start: {text[-2000:]}", fix="please report this")
    threading.Thread(target=child.wait, daemon=True).start()  # reaps it
    return LocalRun(layout.folder, keep_alive)


def _read_answer(fd: int) -> dict[str, Any]:
    with os.fdopen(fd, "rb") as pipe:
        data = pipe.read()
    return json.loads(data) if data else {}
