"""So that `python -m callsheet` is the command line too."""

from callsheet.cli.main import main

main()
