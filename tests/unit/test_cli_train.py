"""What `callsheet train` refuses and says before anything runs."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from stored_training import keep

from callsheet import contract
from callsheet.cli.main import call
from callsheet.cli.verbs import train


@pytest.fixture
def earlier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Results of a training of ppo with one actor and a small network."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return str(keep(tmp_path / "earlier", "CartPole-v1", network={"hidden": [7]}))


def test_a_run_is_gone_on_from_with_its_own_environment_actors_and_settings(
    earlier: str, capsys: pytest.CaptureFixture[str]
) -> None:
    wish = ["train", "ppo", "--resume", earlier, "--set", "gamma=0.5", "--set", "network.log_std=-1"]
    assert call([*wish, "--render"]) == 0
    rendered = capsys.readouterr().out
    assert f'"resume": "file://{earlier}"' in rendered
    assert '"env": "CartPole-v1"' in rendered
    assert '"actors": 1,' in rendered
    assert '"hidden": [\n              7' in rendered
    assert '"gamma": 0.5' in rendered
    assert '"log_std": -1' in rendered


def test_what_rewards_are_learned_from_is_said_in_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    for wish, said in ([], "auto"), (["--rewards", "true"], "true"):
        assert call(["train", "dqn", "--env", "ALE/Pong-v5", *wish, "--render"]) == 0
        assert f'"rewards": "{said}"' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        (["impala"], "that run was trained with ppo; impala cannot resume it"),
        (
            ["ppo", "--env", "Acrobot-v1"],
            "was trained on CartPole-v1, and its policy does not fit Acrobot-v1",
        ),
        (["ppo", "--actors", "3"], "that run had 1 actors; ppo learns from all of them"),
        (["ppo", "--on", "kubernetes"], "in a folder on this machine, which the cluster cannot see"),
    ],
)
def test_what_cannot_change_is_refused_when_a_training_goes_on(
    wish: list[str], said: str, earlier: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["train", *wish, "--resume", earlier, "--render"]) == 2
    assert said in capsys.readouterr().err


def test_pytorch_that_is_missing_is_told_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(train, "find_spec", lambda name: None)
    assert call(["train", "ppo", "--env", "CartPole-v1"]) == 2
    assert "the learner needs PyTorch, which is not installed" in capsys.readouterr().err
    assert not Path("runs").exists()


def test_an_algorithm_of_ones_own_is_started_without_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2] / "examples" / "algorithm")
    monkeypatch.syspath_prepend(str(Path.cwd()))
    monkeypatch.setattr(train, "find_spec", lambda name: None)
    monkeypatch.setattr(train.launch, "launch", lambda *_, **__: 0)
    assert call(["train", "reinforce:WithNumPy", "--env", "CartPole-v1"]) == 0


def test_a_slim_installation_says_what_to_install(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "for name in ('msgspec', 'numpy', 'gymnasium', 'torch', 'zmq'): sys.modules[name] = None\n"
        "from callsheet.cli.main import call\n"
        "sys.exit(call(['train', 'ppo', '--env', 'CartPole-v1']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "training needs msgspec, which is not installed" in done.stderr
    assert "pip install 'callsheet[torch]'" in done.stderr


RENDER = ["train", "ppo", "--env", "CartPole-v1", "--render"]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's settings; none yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("CALLSHEET_REGISTRY", raising=False)
    (tmp_path / "callsheet").mkdir()
    return tmp_path / "callsheet" / "config.toml"


def images(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """All images of the file that was printed, the learner's first."""
    spec = yaml.safe_load(capsys.readouterr().out)["spec"]
    found = [spec.get("image"), *(role.get("image") for role in spec["roles"])]
    return [image for image in found if image]


@pytest.mark.usefixtures("config")
def test_a_file_for_a_laptop_has_no_image_unless_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALLSHEET_REGISTRY", "registry.example.com")
    assert call([*RENDER, "--on", "local"]) == 0
    assert images(capsys) == []
    assert call([*RENDER, "--on", "local", "--image", "mine:1"]) == 0
    assert images(capsys) == ["mine:1"]
    assert call([*RENDER, "--on", "local", "--registry", "r"]) == 0
    assert [image.partition(":")[0] for image in images(capsys)][:2] == ["r/callsheet-learner", "r/callsheet"]


def test_a_cluster_gets_our_images_from_the_registry_that_is_said_last(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def registry(*words: str) -> str:
        assert call([*RENDER, "--on", "kubernetes", *words]) == 0
        learner, actor, evaluator = images(capsys)
        place, _, name = learner.rpartition("/")
        assert name == f"callsheet-learner:{version('callsheet')}"
        assert actor == evaluator == f"{place}/callsheet:{version('callsheet')}"
        return place

    assert registry() == contract.REGISTRY
    config.write_text('registry = "registry.example.com/team"\n')
    assert registry() == "registry.example.com/team"
    monkeypatch.setenv("CALLSHEET_REGISTRY", "localhost:5000")
    assert registry() == "localhost:5000"
    assert registry("--registry", "other/") == "other"
