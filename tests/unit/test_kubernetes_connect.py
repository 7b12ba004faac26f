"""Which cluster is meant, and what is said when there is none."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from callsheet.backends.base import Place, backend
from callsheet.backends.kubernetes.backend import KubernetesBackend
from callsheet.backends.kubernetes.client.api import Api
from callsheet.backends.kubernetes.client.connect import connect
from callsheet.backends.kubernetes.client.errors import Unreachable
from callsheet.cli.main import call
from callsheet.errors import UserError


def config(path: Path, current: str, *contexts: str, server: str = "http://127.0.0.1:9") -> Path:
    data: dict[str, Any] = {
        "current-context": current,
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [
            {"name": name, "context": {"cluster": "c", "user": "u", "namespace": f"ns-{name}"}}
            for name in contexts
        ],
    }
    path.write_text(yaml.safe_dump(data))
    return path


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = config(tmp_path / "config", "one", "one", "two")
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path


@pytest.mark.usefixtures("kubeconfig")
def test_the_current_context_counts_unless_another_is_named() -> None:
    assert (connect().context, connect().namespace) == ("one", "ns-one")
    assert connect("two").namespace == "ns-two"
    assert connect("two", "mine").namespace == "mine"


@pytest.mark.usefixtures("kubeconfig")
def test_a_context_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(UserError, match="has no context 'three'") as caught:
        connect("three")
    assert caught.value.fix == "choose one of: one, two"


def test_several_kubeconfigs_are_read_as_one(
    kubeconfig: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = config(tmp_path / "other", "three", "three")
    monkeypatch.setenv("KUBECONFIG", f"{kubeconfig}:{other}:{tmp_path / 'missing'}")
    assert connect().context == "one"
    assert connect("three").context == "three"


def test_without_a_kubeconfig_the_sentence_names_the_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(UserError, match=f"there is no kubeconfig: {tmp_path / 'none'}"):
        connect()


def test_a_file_that_is_no_kubeconfig_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bad").write_text("- just\n- a list\n")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "bad"))
    with pytest.raises(UserError, match="bad is not a kubeconfig"):
        connect()


@pytest.mark.usefixtures("kubeconfig")
def test_a_cluster_that_does_not_answer_is_named() -> None:
    with pytest.raises(Unreachable, match=r"context .one. at http://127\.0\.0\.1:9 does not answer"):
        Api.connect().objects("Pod")


@pytest.mark.usefixtures("kubeconfig")
@pytest.mark.parametrize("proxy", ["gopher://somewhere:70", "socks5://somewhere:1080"])
def test_a_proxy_that_cannot_be_used_is_told_with_its_place(
    proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    with pytest.raises(
        UserError, match=r"environment names \(HTTPS_PROXY, ALL_PROXY\) cannot be used"
    ) as caught:
        connect()
    assert caught.value.fix == "name a proxy http://host:port or https://host:port"


def test_a_missing_client_library_is_told_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    monkeypatch.delitem(sys.modules, "callsheet.backends.kubernetes.client.http", raising=False)
    with pytest.raises(UserError, match="client library is not installed") as caught:
        backend("kubernetes").runs()
    assert caught.value.fix == "pip install 'callsheet[kubernetes]'"


def test_a_users_settings_count_where_nothing_else_is_said(
    kubeconfig: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "callsheet").mkdir()
    file = tmp_path / "callsheet" / "config.toml"
    file.write_text('context = "two"\nnamespace = "team"\n')
    assert (KubernetesBackend().api.context, KubernetesBackend().api.namespace) == ("two", "team")
    named = KubernetesBackend(Place(context="one")).api
    assert (named.context, named.namespace) == ("one", "ns-one")
    file.write_text('contxt = "two"\n')
    with pytest.raises(UserError, match="has contxt = 'two'"):
        _ = KubernetesBackend().api


def test_the_settings_may_name_the_backend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    (tmp_path / "callsheet").mkdir()
    (tmp_path / "callsheet" / "config.toml").write_text('on = "kubernetes"\n')
    assert call(["ps"]) == 2
    assert "there is no kubeconfig" in capsys.readouterr().err
    assert call(["ps", "--on", "local"]) == 0


def test_a_context_means_nothing_on_a_laptop() -> None:
    with pytest.raises(UserError, match="the local backend has none"):
        backend("local", Place(context="one"))
