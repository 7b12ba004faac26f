"""What can go wrong, on purpose: an injector of faults, a matrix of faults and victims, and a soak.

`python -m tools.faults --help` shows the commands; docs/reference/faults.md is the result.
"""
