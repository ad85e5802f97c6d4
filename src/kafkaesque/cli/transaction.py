"""`kafkaesque transaction`: ls, show, abort."""

from __future__ import annotations

from typing import Any

import click

from kafkaesque.admin.connection import ClusterConnection
from kafkaesque.admin.transactions import (
    abort_hanging,
    describe,
    fence,
    find_hanging,
    list_transactions,
    open_transactions,
)
from kafkaesque.cli.failures import usage
from kafkaesque.cli.options import client_options, complete_topics, confirm, examples
from kafkaesque.cli.render import Column, Screen, iso_time

STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
)
LIST_COLUMNS = (
    Column("transactional_id", "TRANSACTIONAL ID"),
    Column("state", "STATE", "state"),
    Column("producer_id", "PRODUCER", "count"),
    Column("coordinator", "COORDINATOR", "count"),
)
OPEN_COLUMNS = (
    Column("producer_id", "PRODUCER", "count"),
    Column("producer_epoch", "EPOCH", "count"),
    Column("start_offset", "FROM OFFSET", "count"),
    Column("last_written", "LAST WRITTEN"),
)

HANGING_COLUMNS = (
    Column("topic", "TOPIC"),
    Column("partition", "PARTITION", "count"),
    *OPEN_COLUMNS,
)


@click.group()
def transaction() -> None:
    """List and show transactions, and abort hanging ones."""


@transaction.command(
    epilog=examples(
        "kafkaesque transaction ls",
        "kafkaesque transaction ls --state Ongoing --longer-than 60 --json",
        "kafkaesque transaction ls --hanging --topic orders",
    )
)
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(STATES),
    help="Only transactions in this state; may be repeated.",
)
@click.option(
    "--longer-than",
    type=float,
    default=None,
    metavar="SECONDS",
    help="Only transactions that have been open longer.",
)
@click.option(
    "--hanging",
    is_flag=True,
    help="List hanging transactions instead: open in a partition but unknown to any coordinator.",
)
@click.option(
    "--topic", shell_complete=complete_topics, help="With --hanging: check only this topic."
)
@client_options()
def ls(
    states: tuple[str, ...],
    longer_than: float | None,
    hanging: bool,
    topic: str | None,
    connection: ClusterConnection,
    screen: Screen,
) -> None:
    """List transactional ids with their states, or hanging transactions.

    A hanging transaction blocks read_committed consumers of its partition until it is aborted with
    `transaction abort`.
    """
    if topic is not None and not hanging:
        raise usage("--topic needs --hanging.")
    if hanging:
        found = [_readable(row) for row in find_hanging(connection.cluster, topic)]
        screen.document(
            {"hanging": found},
            lambda: screen.table(HANGING_COLUMNS, found, "no hanging transactions"),
        )
        return
    duration_ms = -1 if longer_than is None else int(longer_than * 1000)
    rows = list_transactions(connection.cluster, states, duration_ms)
    screen.document(
        {"transactions": rows}, lambda: screen.table(LIST_COLUMNS, rows, "no transactional ids")
    )


@transaction.command(
    epilog=examples(
        "kafkaesque transaction show payments-1",
        "kafkaesque transaction show --topic orders --partition 3",
    )
)
@click.argument("transactional_id", required=False)
@click.option(
    "--topic",
    shell_complete=complete_topics,
    help="Show open transactions of a partition of this topic.",
)
@click.option("--partition", type=int, default=None, help="Partition of --topic.")
@client_options()
def show(
    transactional_id: str | None,
    topic: str | None,
    partition: int | None,
    connection: ClusterConnection,
    screen: Screen,
) -> None:
    """Show one transactional id, or the open transactions of a partition."""
    _check_target(transactional_id, topic, partition)
    if transactional_id is not None:
        _show_one(describe(connection.cluster, transactional_id), screen)
        return
    rows = [
        _readable(row) for row in open_transactions(connection.cluster, topic or "", partition or 0)
    ]
    document = {"topic": topic, "partition": partition, "open": rows}
    screen.document(document, lambda: screen.table(OPEN_COLUMNS, rows, "no open transactions"))


@transaction.command(
    epilog=examples(
        "kafkaesque transaction abort payments-1",
        "kafkaesque transaction abort --topic orders --partition 3 --producer-id 4711 --yes",
    )
)
@click.argument("transactional_id", required=False)
@click.option("--topic", shell_complete=complete_topics, help="Topic of the hanging transaction.")
@click.option("--partition", type=int, default=None, help="Partition of --topic.")
@click.option(
    "--producer-id", type=int, default=None, help="Required if several transactions are open."
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@client_options()
def abort(
    transactional_id: str | None,
    topic: str | None,
    partition: int | None,
    producer_id: int | None,
    yes: bool,
    connection: ClusterConnection,
    screen: Screen,
) -> None:
    """Abort a transaction by its transactional id, or a hanging one by its partition.

    By id, the coordinator aborts it in all partitions and fences its producer. A hanging transaction is
    open in a partition but unknown to its coordinator; it is aborted only in that partition.
    """
    _check_target(transactional_id, topic, partition)
    if transactional_id is not None:
        confirm(yes, f"Fence the producer of {transactional_id} and abort its transaction?")
        found = fence(connection.cluster, transactional_id)
        done: dict[str, Any] = {"transactional_id": transactional_id, **found}
        screen.document(done, lambda: screen.note(f"{transactional_id} is fenced and aborted"))
        return
    where = f"{topic}-{partition}"
    confirm(yes, f"Abort the transaction that is open in {where}?")
    ended = abort_hanging(connection.cluster, topic or "", partition or 0, producer_id)
    screen.document(
        {"topic": topic, "partition": partition, "aborted": _readable(ended)},
        lambda: screen.note(f"the transaction of producer {ended['producer_id']} in {where} ended"),
    )


def _check_target(transactional_id: str | None, topic: str | None, partition: int | None) -> None:
    by_place = topic is not None and partition is not None
    if (transactional_id is not None) == by_place or (topic is None) != (partition is None):
        raise usage("Use either a transactional id, or both --topic and --partition.")


def _show_one(found: dict[str, Any], screen: Screen) -> None:
    def fields() -> None:
        started_ms = found["started_ms"]
        screen.fields(
            [
                ("Transactional id", found["transactional_id"]),
                ("State", found["state"]),
                ("Producer", f"{found['producer_id']} in epoch {found['producer_epoch']}"),
                ("Timeout", f"{found['timeout_ms']} ms"),
                ("Started", iso_time(started_ms) if started_ms >= 0 else None),
                ("Coordinator", found["coordinator"]),
                ("Partitions", ", ".join(found["partitions"]) or None),
            ]
        )

    screen.document(found, fields)


def _readable(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "last_written": iso_time(row["last_written_ms"])}
