"""What the documentation shows is run: its commands, programs, experiments and links are all real."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from importlib import util
from pathlib import Path

import pytest
from doc_pages import ROOT, Block, anchors, blocks, commands_and_output, links, missing, pages

from callsheet import contract
from callsheet.plan.load import load

PATIENCE = 120.0
PAGES = [pytest.param(page, id=str(page.relative_to(ROOT))) for page in pages()]
MARKED = [
    pytest.param(page, id=str(page.relative_to(ROOT)))
    for page in pages()
    if any(block.mark for block in blocks(page))
]
EXPERIMENTS = [
    pytest.param(block, id=block.where)
    for page in pages()
    for block in blocks(page)
    if block.language == "yaml" and "kind: Experiment" in block.text
]


@pytest.fixture
def shell(folder: Path) -> Iterator[Mapping[str, str]]:
    """The environment of somebody who has installed Callsheet. Whatever a page leaves running is ended."""
    bin = Path(sys.executable).parent
    env = os.environ | {"PATH": f"{bin}{os.pathsep}{os.environ['PATH']}", "PYTHONWARNINGS": "error"}
    yield env
    subprocess.run(["callsheet", "stop", "--all", "--now"], env=env, capture_output=True, check=False)


@pytest.mark.parametrize("page", MARKED)
@pytest.mark.long
def test_a_page_runs_as_written(page: Path, folder: Path, shell: Mapping[str, str]) -> None:
    here = folder / "here"
    here.mkdir()
    for block in blocks(page):
        if block.mark.startswith("file "):
            (here / block.mark.removeprefix("file ")).write_text(block.text)
        elif block.mark:
            here = run(block, here, shell)


def run(block: Block, here: Path, env: Mapping[str, str]) -> Path:
    """Run a marked block; the folder in which it leaves its reader."""
    mark = re.fullmatch(r"run(?:, exits with (?P<code>\d+))?(?P<interrupt>, then Ctrl-C)?", block.mark)
    assert mark, f"{block.where}: the mark {block.mark!r} is not known"
    if block.language == "python":
        (here / "example.py").write_text(block.text)
        typed, shown = "python example.py", []
    else:
        typed, shown = commands_and_output(block.text) if block.language == "console" else (block.text, [])
    last = here.parent / "folder"
    script = typed if mark["interrupt"] else f"set -e\ntrap 'pwd > {last}' EXIT\n{typed}\n"
    printed = here.parent / "printed"
    with open(printed, "wb") as output:
        shell = subprocess.Popen(
            ["bash", "-c", ("exec " if mark["interrupt"] else "") + script],
            cwd=here,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        if mark["interrupt"]:
            wait_for(shown, printed, shell, block)
            shell.send_signal(signal.SIGINT)
        code = shell.wait(PATIENCE)
    text = printed.read_text(errors="replace")
    expected = contract.EXIT_INTERRUPTED if mark["interrupt"] else int(mark["code"] or 0)
    assert code == expected, f"{block.where} ended with {code}:\n{text}"
    lacking = missing(shown, text)
    assert not lacking, f"{block.where} did not print {lacking}, but:\n{text}"
    return here if mark["interrupt"] else Path(last.read_text().strip())


def wait_for(shown: list[str], printed: Path, shell: subprocess.Popen[bytes], block: Block) -> None:
    limit = time.monotonic() + PATIENCE
    while lacking := missing(shown, printed.read_text(errors="replace")):
        assert shell.poll() is None, f"{block.where} ended before it printed {lacking}"
        assert time.monotonic() < limit, f"{block.where} did not print {lacking}: {printed.read_text()}"
        time.sleep(0.05)  # polls a file that another process writes


def test_shown_output_may_differ_in_amounts_and_ids_alone() -> None:
    printed = (
        "learner/0  Running  2s  127.8.1.9\nactor 0 of 2 is up\nrun k93mkwvt, results in /a/b/k93mkwvt\n"
    )
    assert missing(["learner/0 Running 31s 127.165.83.1", "run wrj7fnb7, results in ..."], printed) == []
    assert missing(["actor 0 of 4 is up", "learner/0 Failed"], printed) == [
        "actor 0 of 4 is up",
        "learner/0 Failed",
    ]


@pytest.mark.parametrize("block", EXPERIMENTS)
def test_an_experiment_in_a_page_is_valid(block: Block) -> None:
    assert load(["-"], stdin=io.StringIO(block.text))


def test_the_readme_shows_what_init_writes(shell: Mapping[str, str]) -> None:
    subprocess.run(["callsheet", "init", "first"], env=dict(shell), check=True, capture_output=True)
    shown = next(block for block in blocks(ROOT / "README.md") if block.language == "yaml")
    (written,) = load(["first/experiment.yaml"])
    (readme,) = load(["-"], stdin=io.StringIO(shown.text))
    assert readme.experiment == written.experiment


@pytest.mark.parametrize("page", PAGES)
def test_links_between_pages_resolve(page: Path) -> None:
    for target in links(page):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{page} links to {target}, which is not there"
        if anchor:
            assert anchor in anchors(there), f"{page} links to {target}: there is no such heading"


def test_every_page_is_in_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    listed = {(index.parent / target.partition("#")[0]).resolve() for target in links(index)}
    assert {path for path in ROOT.glob("docs/**/*.md") if path != index} <= listed


def test_code_names_decisions_that_exist() -> None:
    there = {page.name[:4] for page in ROOT.glob("docs/decisions/*.md")}
    code = [
        path.read_text() for folder in ("src", "tools", "tests") for path in ROOT.glob(f"{folder}/**/*.py")
    ]
    assert {number for text in code for number in re.findall(r"docs/decisions/(\d{4})", text)} <= there


def test_the_architecture_page_names_files_that_exist() -> None:
    text = (ROOT / "docs" / "concepts" / "architecture.md").read_text()
    named = re.findall(r"`([\w/]+(?:\.py|/))`", text)
    assert len(named) > 10
    assert [
        path for path in named if "NAME" not in path and not (ROOT / "src" / "callsheet" / path).exists()
    ] == ["src/callsheet/"]


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/decisions/*.md")), ids=lambda page: page.name)
def test_a_decision_has_a_status_a_date_and_three_sections(page: Path) -> None:
    lines = page.read_text().splitlines()
    assert lines[2] in ("- Status: accepted", "- Status: superseded"), lines[2]
    assert re.fullmatch(r"- Date: \d{4}-\d\d-\d\d", lines[3]), lines[3]
    assert [line for line in lines if line.startswith("## ")] == [
        "## Context",
        "## Decision",
        "## Consequences",
    ]


def test_the_contract_page_names_every_variable_and_word() -> None:
    text = (ROOT / "docs" / "concepts" / "contract.md").read_text()
    names = [v for v in vars(contract).values() if isinstance(v, str) and v.startswith(contract.PREFIX)]
    names += [f"{{{word}}}" for word in contract.WORDS]
    names += [f".{word}}}" for word in contract.ENDPOINT_WORDS]
    names += [f"_{v}" for k, v in vars(contract).items() if k.startswith("ENDPOINT_") and isinstance(v, str)]
    assert [name for name in names if name not in text] == []


def test_the_generated_reference_pages_are_current() -> None:
    spec = util.spec_from_file_location("reference", ROOT / "tools" / "reference.py")
    assert spec
    assert spec.loader
    reference = util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    for path, text in reference.pages().items():
        assert path.read_text() == text, f"{path} is out of date: run `make docs`"
