"""The rules of a run, shared by every backend: pure functions of plain data, with no clock and no I/O.

`restart` decides what happens when a replica ends, `verdict` when the run ends. Backends observe, call these and act;
they own no rule themselves.
"""
