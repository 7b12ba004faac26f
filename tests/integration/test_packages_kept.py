"""What one checkout installed, the next one links: real environments, with a package and its command."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tools import packages


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Lists and a place for packages of our own."""
    for name in packages.LISTS:
        (tmp_path / name).write_text("lists\n")
    monkeypatch.setattr(packages, "ROOT", tmp_path)
    monkeypatch.setattr(packages, "KEPT", tmp_path / "cache")
    return tmp_path / "cache"


def environment(folder: Path) -> Path:
    venv.create(folder, symlinks=True)
    return folder


def site(env: Path) -> Path:
    return env / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"


def install(env: Path, name: str) -> None:
    """As pip does it: a package, what is known about it, and a command that names its Python."""
    (site(env) / name).mkdir()
    (site(env) / name / "__init__.py").write_text(f"print('this is {name}')\n")
    (site(env) / f"{name}-1.dist-info").mkdir()
    (site(env) / f"{name}-1.dist-info" / "METADATA").write_text(f"Name: {name}\nVersion: 1\n")
    command = env / "bin" / name
    command.write_text(f"#!{env.absolute()}/bin/python\nimport {name}\n")
    command.chmod(0o755)


def test_packages_and_their_commands_are_those_of_the_new_environment(tmp_path: Path) -> None:
    first = environment(tmp_path / "first")
    install(first, "useful")
    install(first, "callsheet")
    packages.keep(first)
    second = environment(tmp_path / "second")
    packages.take(second)
    command = second / "bin" / "useful"
    done = subprocess.run([command], capture_output=True, text=True, check=True)
    assert done.stdout == "this is useful\n"
    assert command.read_text().startswith(f"#!{second}/bin/python\n")
    assert (site(second) / "useful" / "__init__.py").stat().st_nlink == 3, "first, second and what is kept"
    assert not list(second.rglob("callsheet*")), "the checkout itself is not a package to keep"


def test_what_an_environment_has_stays(tmp_path: Path) -> None:
    first, second = environment(tmp_path / "first"), environment(tmp_path / "second")
    install(first, "useful")
    packages.keep(first)
    install(second, "useful")
    (site(second) / "useful" / "__init__.py").write_text("print('mine')\n")
    packages.take(second)
    done = subprocess.run([second / "bin" / "useful"], capture_output=True, text=True, check=True)
    assert done.stdout == "mine\n"


def test_other_lists_get_nothing_and_replace_what_is_kept(tmp_path: Path, kept: Path) -> None:
    first = environment(tmp_path / "first")
    install(first, "useful")
    packages.keep(first)
    (before,) = kept.iterdir()
    (tmp_path / "constraints.txt").write_text("useful==2\n")
    second = environment(tmp_path / "second")
    packages.take(second)
    assert not (site(second) / "useful").exists()
    install(second, "other")
    packages.keep(second)
    (after,) = kept.iterdir()
    assert after != before


def test_where_links_cannot_be_made_nothing_is_kept(
    tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    first = environment(tmp_path / "first")
    install(first, "useful")
    monkeypatch.setattr(os, "link", refuse)
    packages.keep(first)
    assert not list(kept.iterdir())
