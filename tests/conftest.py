"""What all tests share. (A conftest here also makes `strategies` importable from every test folder.)"""

from __future__ import annotations

import signal

from hypothesis import settings

# A background job or `nohup` hands on signals that are ignored; the programs under test must see them as usual.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

# A time limit per example would fail on a busy machine for no fault of the code.
settings.register_profile("callsheet", deadline=None, max_examples=40)
settings.load_profile("callsheet")
