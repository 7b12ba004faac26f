"""The fuzzer, bounded: what it has found before, and some cases of a fixed seed. `python -m tools.fuzz` goes on for longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.fuzz.inputs import parsers
from tools.fuzz.kept import FOLDER, Corpus
from tools.fuzz.live import attack
from tools.fuzz.parsers import Parser
from tools.fuzz.ports import control_socket, metrics_port
from tools.fuzz.result import Result
from tools.fuzz.services import SERVERS

SEED = 13


@pytest.mark.parametrize("parser", parsers(), ids=lambda parser: parser.name)
def test_a_parser_refuses_what_it_does_not_understand(parser: Parser, tmp_path: Path) -> None:
    result = Result(parser.name)
    kept, corpus = Corpus(parser.name.replace(" ", "-")), Corpus(parser.name, tmp_path)
    for data in kept.inputs:
        parser.try_(data, result, corpus, SEED)
    found = parser.run(SEED, 300, 5.0, corpus)
    assert not result.failures + found.failures


@pytest.mark.parametrize("kind", list(SERVERS))
def test_a_server_lives_on_and_serves_while_a_member_sends_garbage(kind: str) -> None:
    result = attack(kind, SEED, 2000, 4.0, gap=10.0)  # others may use the machine, too
    assert not result.failures
    assert result.cases


def test_a_port_of_metrics_answers_whoever_asks_properly() -> None:
    assert not metrics_port(SEED, 300, 3.0, gap=10.0).failures


def test_a_supervisor_answers_whoever_asks_properly() -> None:
    assert not control_socket(SEED, 300, 3.0, gap=10.0).failures


def test_the_corpus_is_small() -> None:
    files = [path for path in FOLDER.rglob("*") if path.is_file()]
    assert files
    assert sum(path.stat().st_size for path in files) < 1 << 20
