"""`callsheet completion`: print a shell's completion script."""

from __future__ import annotations

import sys

import click
from click.shell_completion import get_completion_class

from callsheet.cli import output
from callsheet.errors import BugError

_INSTALL = {
    "bash": "callsheet completion bash > ~/.local/share/bash-completion/completions/callsheet",
    "zsh": 'callsheet completion zsh > "${fpath[1]}/_callsheet"',
    "fish": "callsheet completion fish > ~/.config/fish/completions/callsheet.fish",
}


@click.command()
@click.argument("shell", type=click.Choice(list(_INSTALL)))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print a completion script for your shell.

    \b
    In the current shell:   eval "$(callsheet completion bash)"
    In every new shell:     callsheet completion bash > \\
                              ~/.local/share/bash-completion/completions/callsheet
    """
    completion = get_completion_class(shell)
    if completion is None:
        raise BugError(f"click offers no completion for {shell}")
    output.answer(completion(ctx.find_root().command, {}, "callsheet", "_CALLSHEET_COMPLETE").source())
    if sys.stdout.isatty():
        output.say(f"To load it in every new shell, run: {_INSTALL[shell]}")
