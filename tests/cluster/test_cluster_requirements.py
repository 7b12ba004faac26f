"""Where no cluster can be had, the tool and the tests say so in one line; in CI that is a failure."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from conftest import need_root, why_not

from tools.cluster import build, packages, pki, versions
from tools.cluster.cli import main
from tools.cluster.errors import ClusterError


@pytest.fixture
def no_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.delenv("CI", raising=False)


@pytest.mark.usefixtures("no_root")
def test_without_root_the_tool_says_what_it_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up"]) == 1
    assert (
        capsys.readouterr().err
        == "error: a cluster of namespaces needs root\n  fix: run the command with sudo\n"
    )


def test_on_another_system_the_tool_says_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert main(["up"]) == 1
    assert "needs Linux; this is darwin" in capsys.readouterr().err


@pytest.mark.usefixtures("no_root")
def test_without_root_the_tests_are_skipped_with_one_line() -> None:
    with pytest.raises(pytest.skip.Exception, match="no cluster: it needs root"):
        need_root()


@pytest.mark.usefixtures("no_root")
def test_in_ci_they_are_never_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(AssertionError, match="it needs root"):
        need_root()


def test_the_cache_is_outside_the_tree_and_follows_the_sources(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = versions.built()
    assert before.parent == tmp_path / "callsheet" / "cluster"
    monkeypatch.setattr(versions, "PROGRAMS", versions.PROGRAMS[:-1])
    assert versions.built() != before


def test_a_cache_that_the_nodes_could_not_see_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/lib/somewhere")
    with pytest.raises(ClusterError, match="set XDG_CACHE_HOME"):
        build.build()


def test_under_sudo_the_kubeconfig_belongs_to_the_person_who_called(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if why_not():
        pytest.skip("only root can give files away")
    monkeypatch.setenv("SUDO_UID", "1000")
    file = tmp_path / "kubeconfig"
    file.touch(0o600)
    pki.give_to_caller(file)
    assert file.stat().st_uid == 1000


def test_missing_packages_are_named_where_they_cannot_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ClusterError, match="these are missing: containerd"):
        packages.require({"containerd": "containerd"})
