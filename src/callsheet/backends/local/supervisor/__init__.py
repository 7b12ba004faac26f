"""The process that owns a run on this machine.

It reads a plan and makes it real, with the standard library alone, so that it starts fast and stays small.
"""
