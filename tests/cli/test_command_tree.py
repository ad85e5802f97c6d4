"""Promises of every command, checked over the whole tree."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from kafkaesque.cli.main import cli

WITHOUT_JSON: dict[str, str] = {}
"""Commands that cannot have --json, with the reason. There are none."""


def leaves(command: click.Command, context: click.Context) -> Iterator[click.Context]:
    """Contexts of all commands that do something."""
    if not isinstance(command, click.Group):
        yield context
        return
    if command.invoke_without_command:
        yield context
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None, name
        yield from leaves(found, click.Context(found, info_name=name, parent=context))


def path(context: click.Context) -> str:
    return context.command_path.removeprefix("kafkaesque ")


LEAVES = list(leaves(cli, click.Context(cli, info_name="kafkaesque")))


def test_tree_has_all_commands() -> None:
    assert len(LEAVES) > 60
    assert set(WITHOUT_JSON) <= {path(context) for context in LEAVES}


@pytest.mark.parametrize("context", LEAVES, ids=path)
def test_command_has_help_with_examples_and_json(context: click.Context) -> None:
    command = context.command
    text = command.get_help(context)
    assert command.help, "says nothing of itself"
    _, _, examples = text.partition("Examples:")
    assert f"kafkaesque {path(context)}" in examples, "no example of the command itself"
    options = {option for parameter in command.params for option in parameter.opts}
    assert ("--json" in options) is (path(context) not in WITHOUT_JSON)


@pytest.mark.parametrize("context", LEAVES, ids=path)
def test_every_option_is_documented(context: click.Context) -> None:
    undocumented = [
        option.opts[-1]
        for option in context.command.params
        if isinstance(option, click.Option) and not option.hidden and not option.help
    ]
    assert undocumented == []
