"""`callsheet completion`: the script that lets a shell complete verbs, options, runs and replicas."""

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
    """Print the completion script of a shell.

    \b
    Now, in this shell:   eval "$(callsheet completion bash)"
    For every new one:    callsheet completion bash > \\
                            ~/.local/share/bash-completion/completions/callsheet
    """
    maker = get_completion_class(shell)
    if maker is None:
        raise BugError(f"click offers no completion for {shell}")
    output.answer(maker(ctx.find_root().command, {}, "callsheet", "_CALLSHEET_COMPLETE").source())
    if sys.stdout.isatty():
        output.say(f"To have it in every new shell: {_INSTALL[shell]}")
