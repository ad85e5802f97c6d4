"""`kafkaesque compat`: which features a cluster uses, and whether another Kafka has them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click

from kafkaesque.admin.compat.rules.verdicts import (
    FeatureVerdict,
    judge,
)
from kafkaesque.admin.connection import ClusterConnection
from kafkaesque.cli.failures import ExitCode
from kafkaesque.cli.options import client_options, examples, open_connection, read_properties
from kafkaesque.cli.render import Screen
from kafkaesque.cli.terminal_text import visible

MARKS = {"ok": ("ok", "green"), "lacking": ("LACK", "red"), "unknown": ("?", "yellow")}


@click.command(
    epilog=examples(
        "kafkaesque compat                                   # against Apache Kafka 4.x",
        "kafkaesque compat --target kafka.example:9092       # against that cluster",
        "kafkaesque compat -b kafka.example:9092 --target 127.0.0.1:9092   # the other way",
        "kafkaesque compat --json | jq '.verdicts[] | select(.status == \"lacking\")'",
    )
)
@click.option("--target", metavar="HOST:PORT[,...]", help="The Kafka to move to.")
@click.option(
    "--target-config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File of client properties for the target: TLS, SASL.",
)
@client_options()
def compat(
    target: str | None, target_config: Path | None, connection: ClusterConnection, screen: Screen
) -> int:
    """Report which features a cluster uses and whether the target has them.

    Checks topics and their settings, records (the oldest and the newest batch of one partition of
    each topic), producers, groups, ACLs, quotas, users and cluster-wide settings. Nothing is created
    on the target; without --target, compares with Apache Kafka 4.x. Exits with 1 if the target lacks
    a feature.
    """
    elsewhere = None
    if target is not None:
        properties = read_properties(target_config) if target_config else {}
        elsewhere = open_connection(target, properties, connection.timeout_s)
    # Imported late: --help is faster without the wire protocol.
    from kafkaesque.admin.compat.survey import survey

    found = asyncio.run(survey(connection, elsewhere))
    verdicts = judge(found.usage, found.offer)
    lacking = sum(verdict.status == "lacking" for verdict in verdicts)
    document = {
        "source": connection.bootstrap,
        "target": found.offer.name,
        "lacking": lacking,
        "verdicts": [verdict._asdict() for verdict in verdicts],
    }
    screen.document(document, lambda: _show(screen, document, verdicts))
    return int(ExitCode.FAILED if lacking else ExitCode.OK)


def _show(screen: Screen, document: dict[str, Any], verdicts: list[FeatureVerdict]) -> None:
    screen.heading(f"{document['source']} -> {document['target']}")
    width = max(len(verdict.feature) for verdict in verdicts)
    for verdict in verdicts:
        mark, colour = MARKS[verdict.status]
        styled = click.style(mark.ljust(4), fg=colour, bold=verdict.status == "lacking")
        screen.styled(f"  {styled}  {verdict.feature.ljust(width)}  {visible(verdict.text)}")
        if verdict.fix:
            screen.styled(
                f"        {'':{width}}  {click.style('do:', bold=True)} {visible(verdict.fix)}"
            )
    lacking = document["lacking"]
    screen.line()
    screen.line(
        f"The target lacks {lacking} of the {len(verdicts)} features in use."
        if lacking
        else "The target has all features in use."
    )
