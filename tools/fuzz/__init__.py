"""Structure-aware fuzzing of everything that reads bytes from outside: `python -m tools.fuzz --help`.

Cases are made from valid input by changes that know its structure, repeatable by a seed. Parsers are called directly;
servers run in processes of their own, beside a client that must be served all the while.
"""
