"""`kafkaesque config`: list, describe, set and unset settings of topics and brokers."""

from __future__ import annotations

from typing import Any

import click

from kafkaesque.admin.connection import ClusterConnection
from kafkaesque.admin.settings import (
    DOCUMENTED,
    ResourceKind,
    alter_settings,
    check_exists,
    describe_settings,
)
from kafkaesque.cli.failures import usage
from kafkaesque.cli.options import client_options, examples, json_option, read_pair
from kafkaesque.cli.render import Column, Screen
from kafkaesque.model.setting import Scope, Setting

kind_argument = click.argument("kind", metavar="topic|broker", type=click.Choice(list(DOCUMENTED)))
name_argument = click.argument("name", metavar="NAME|ID")


@click.group()
def config() -> None:
    """Show, change and document settings of topics and brokers."""


@config.command(
    "list",
    epilog=examples(
        "kafkaesque config list",
        "kafkaesque config list topic --filter retention",
        "kafkaesque config list broker --json",
    ),
)
@click.argument("kind", required=False, type=click.Choice(list(DOCUMENTED)))
@click.option(
    "--filter", "needle", default="", metavar="TEXT", help="Show only names that contain this text."
)
@json_option
def list_settings(kind: str | None, needle: str, screen: Screen) -> None:
    """Document every setting of a Kafkaesque broker and its topics.

    Set broker settings with `broker --set NAME=VALUE`, topic settings with `topic create --config` or
    `config set topic`. Names and meanings are Apache Kafka's, except for those marked "ours".
    """
    kinds = [kind] if kind else list(DOCUMENTED)
    found = {
        key: [_setting_row(item) for item in DOCUMENTED[key].values() if needle in item.name]
        for key in kinds
    }
    screen.document(found, lambda: _show_settings(screen, found))


def _setting_row(item: Setting) -> dict[str, Any]:
    return {
        "name": item.name,
        "type": item.type.name.lower(),
        "default": item.show(item.default),
        "at_least": item.at_least,
        "at_most": item.at_most,
        "choices": list(item.choices),
        "changes": "at start" if item.scope is Scope.READ_ONLY else "at once",
        "ours": item.ours,
        "doc": item.doc,
    }


def _show_settings(screen: Screen, found: dict[str, list[dict[str, Any]]]) -> None:
    """One paragraph per setting, because the documentation does not fit into a table."""
    for kind, rows in found.items():
        screen.heading(f"{kind.capitalize()} settings")
        for row in rows:
            facts = click.style(", ".join(_facts(row)), dim=True)
            screen.line()
            screen.styled(f"  {click.style(row['name'], bold=True)}  {facts}")
            screen.line(click.wrap_text(row["doc"], 96, "      ", "      "))
        screen.line()


def _facts(row: dict[str, Any]) -> list[str]:
    facts = [row["type"], f"default {row['default'] or 'none'}"]
    if row["choices"]:
        facts.append(" | ".join(row["choices"]))
    if row["at_least"] is not None:
        facts.append(f"at least {row['at_least']}")
    if row["at_most"] is not None:
        facts.append(f"at most {row['at_most']}")
    if row["changes"] == "at start":
        facts.append("only at start")
    if row["ours"]:
        facts.append("ours")
    return facts


@config.command(
    epilog=examples(
        "kafkaesque config describe topic orders",
        "kafkaesque config describe topic orders --all",
        "kafkaesque config describe broker 0 --all --json",
    )
)
@kind_argument
@name_argument
@click.option("--all", "everything", is_flag=True, help="Also show settings with their default.")
@click.option("--doc", "with_doc", is_flag=True, help="Also show the documentation.")
@client_options()
def describe(
    kind: ResourceKind,
    name: str,
    everything: bool,
    with_doc: bool,
    connection: ClusterConnection,
    screen: Screen,
) -> None:
    """Show the settings of a topic or a broker, and where each comes from."""
    check_exists(connection, kind, name)
    rows = describe_settings(connection, kind, name)
    if not everything:
        rows = [row for row in rows if row["source"] != "default"]
    columns = [
        Column("name", "Setting", style="bold"),
        Column("value", "Value"),
        Column("source", "Set by"),
        Column("default", "Default"),
    ]
    if with_doc:
        columns.append(Column("doc", "Meaning", style="dim"))
    note = "all settings have their default: --all shows them"
    screen.document(
        {"kind": kind, "name": name, "configs": rows}, lambda: screen.table(columns, rows, note)
    )


@config.command(
    "set",
    epilog=examples(
        "kafkaesque config set topic orders retention.ms=86400000 cleanup.policy=compact",
        "kafkaesque config set broker 0 log.retention.ms=86400000",
    ),
)
@kind_argument
@name_argument
@click.argument("pairs", metavar="NAME=VALUE...", nargs=-1, required=True)
@client_options()
def set_settings(
    kind: ResourceKind,
    name: str,
    pairs: tuple[str, ...],
    connection: ClusterConnection,
    screen: Screen,
) -> None:
    """Change settings of a topic or a broker."""
    settings = dict(read_pair(text) for text in pairs)
    check_exists(connection, kind, name)
    alter_settings(connection, kind, name, settings, ())
    screen.document(
        {"kind": kind, "name": name, "set": settings},
        lambda: screen.line("\n".join(f"{key}={value}" for key, value in settings.items())),
    )


@config.command(epilog=examples("kafkaesque config unset topic orders retention.ms"))
@kind_argument
@name_argument
@click.argument("settings", metavar="NAME...", nargs=-1, required=True)
@client_options()
def unset(
    kind: ResourceKind,
    name: str,
    settings: tuple[str, ...],
    connection: ClusterConnection,
    screen: Screen,
) -> None:
    """Reset settings of a topic or a broker to their default."""
    if wrong := [text for text in settings if "=" in text]:
        raise usage(f"'{wrong[0]}': unset takes names without values.")
    check_exists(connection, kind, name)
    alter_settings(connection, kind, name, {}, settings)
    screen.document(
        {"kind": kind, "name": name, "unset": list(settings)},
        lambda: screen.line("\n".join(f"{key}: default" for key in settings)),
    )
