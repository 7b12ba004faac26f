"""The door for Symphony users: their scripts run with `symphony.` in the imports changed to this package's name.

The specs keep Symphony's methods and compile to a Callsheet experiment; the clusters start it and look at it.
What Callsheet has no counterpart for raises a clear error and never passes in silence. The mapping is in
`docs/how-to/symphony.md`.
"""
