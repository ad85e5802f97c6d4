"""`kafkaesque completion`: prints completion scripts for shells."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from kafkaesque.cli.failures import CommandFailure
from kafkaesque.cli.options import examples, json_option
from kafkaesque.cli.render import Screen

PROGRAM = "kafkaesque"
VARIABLE = "_KAFKAESQUE_COMPLETE"
INSTALL = {
    "bash": "kafkaesque completion bash > ~/.local/share/bash-completion/completions/kafkaesque",
    "zsh": "kafkaesque completion zsh > ~/.zfunc/_kafkaesque   (with ~/.zfunc in $fpath)",
    "fish": "kafkaesque completion fish > ~/.config/fish/completions/kafkaesque.fish",
}


@click.command(
    epilog=examples(
        "source <(kafkaesque completion bash)           # this shell only", *INSTALL.values()
    )
)
@click.argument("shell", type=click.Choice(list(INSTALL)))
@json_option
@click.pass_context
def completion(ctx: click.Context, shell: str, screen: Screen) -> None:
    """Print the completion script of a shell. It completes topic names too."""
    kind = get_completion_class(shell)
    if kind is None:
        raise CommandFailure(f"no completion for {shell}", f"use one of {', '.join(INSTALL)}")
    lines = kind(ctx.find_root().command, {}, PROGRAM, VARIABLE).source().splitlines()
    script = _with_hint(lines, f"# To install: {INSTALL[shell]}")
    document = {"shell": shell, "script": script, "install": INSTALL[shell]}
    screen.document(document, lambda: click.echo(script))


def _with_hint(lines: list[str], hint: str) -> str:
    # zsh requires the #compdef line first.
    at = 1 if lines and lines[0].startswith("#compdef") else 0
    return "\n".join([*lines[:at], hint, *lines[at:]])
