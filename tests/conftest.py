"""What all tests share. (A conftest here also makes `strategies` importable from every test folder.)"""

from __future__ import annotations

from hypothesis import settings

# A time limit per example would fail on a busy machine for no fault of the code.
settings.register_profile("callsheet", deadline=None, max_examples=40)
settings.load_profile("callsheet")
