"""Compatibility with Symphony: its scripts run if you change `symphony.` in their imports to this package's name.

Specs keep Symphony's methods and become a Callsheet experiment; clusters start and inspect it. A call without a
counterpart raises an error that says so. The mapping is in `docs/how-to/symphony.md`.
"""
