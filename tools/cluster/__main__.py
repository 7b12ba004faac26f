"""`python -m tools.cluster VERB`: the entry point."""

import sys

from tools.cluster.cli import main

sys.exit(main(sys.argv[1:]))
