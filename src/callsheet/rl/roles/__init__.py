"""The programs of a training: ``python -m callsheet.rl.roles ROLE FILE``, with the training's file."""
