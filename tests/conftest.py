"""What all tests share. (A conftest here also makes `strategies` importable from every test folder.)"""

from __future__ import annotations

import signal

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

# A background job or `nohup` hands on signals that are ignored; the programs under test must see them as usual.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

# A time limit per example would fail on a busy machine for no fault of the code.
settings.register_profile("callsheet", deadline=None, max_examples=40)
settings.load_profile("callsheet")


class FaultsInTurn(LoadScopeScheduling):
    """The tests that hurt a cluster follow each other in one worker, the first to begin; all others go anywhere."""

    def _split_scope(self, nodeid: str) -> str:
        return "faults" if nodeid.partition("::")[0].endswith("faults.py") else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FaultsInTurn | None:
    # xdist's own `loadgroup` groups nothing with pytest 9.2 (pytest-xdist issue 1386).
    return FaultsInTurn(config, log) if config.getoption("dist") == "loadgroup" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.get_closest_marker("long") is None)
