"""`kafkaesque tasks dlq`: lists, redrives and drops dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

import click

from kafkaesque.cli.failures import CommandFailure, TargetNotFound, usage
from kafkaesque.cli.options import client_options, examples
from kafkaesque.cli.render import Column, Screen, iso_time

if TYPE_CHECKING:
    from kafkaesque.admin.connection import ClusterConnection
    from kafkaesque.client.dead_letters import DeadLetter, LetterSelection
    from kafkaesque.client.kafka import KafkaLog

_COLUMNS = [
    Column("id", "ID"),
    Column("task", "TASK"),
    Column("reason", "REASON"),
    Column("failure", "FAILURE"),
    Column("attempts", "ATTEMPTS", "count"),
    Column("dead_at", "GIVEN UP"),
]
FAILURE_LENGTH_SHOWN = 60


@click.group()
def dlq() -> None:
    """Manage dead letters: calls that exhausted their retries, with cause, traceback and origin.

    QUEUE is the name of an application's queue; the default queue has the application's name. ID is
    the position of the last failed attempt, from `dlq ls`.
    """


def _choice(function: Any) -> Any:
    for option in (
        click.option("--all", "everything", is_flag=True, help="All letters of the queue."),
        click.option("--reason", help="Only letters with this reason."),
        click.option("--task", "task_name", help="Only letters of this task."),
        click.argument("ids", nargs=-1, metavar="[ID]..."),
    ):
        function = option(function)
    return function


@dlq.command("ls", epilog=examples("kafkaesque tasks dlq ls shop",
                                   "kafkaesque tasks dlq ls shop --task charge --json"))  # fmt: skip
@click.argument("queue")
@click.option("--task", "task_name", help="Only letters of this task.")
@click.option("--reason", help="Only letters with this reason.")
@client_options()
def list_letters(
    connection: ClusterConnection,
    screen: Screen,
    queue: str,
    task_name: str | None,
    reason: str | None,
) -> None:
    """List the dead letters of a queue, oldest first."""
    from kafkaesque.client.dead_letters import LetterSelection

    letters = _read(connection, queue, LetterSelection(task=task_name, reason=reason))
    rows = [_row(letter) for letter in letters.values()]
    shown = [{**row, "failure": str(row["failure"])[:FAILURE_LENGTH_SHOWN]} for row in rows]
    screen.document(rows, lambda: screen.table(_COLUMNS, shown, f"{queue} has no dead letters"))


@dlq.command(epilog=examples("kafkaesque tasks dlq show shop tasks.shop/3/17"))
@click.argument("queue")
@click.argument("letter_id", metavar="ID")
@client_options()
def show(connection: ClusterConnection, screen: Screen, queue: str, letter_id: str) -> None:
    """Show one dead letter with its call and traceback."""
    from kafkaesque.client.dead_letters import LetterSelection

    letter = _read(connection, queue, LetterSelection(ids=[letter_id]))[letter_id]
    document = {**_row(letter), "origin": letter.origin, "call_id": letter.call_id,
                "first_failure_at": iso_time(letter.first_failure_ms),
                "key": _text(letter.key), "value": _text(letter.value),
                "traceback": letter.trace}  # fmt: skip

    def draw() -> None:
        screen.fields([(name, value) for name, value in document.items() if name != "traceback"])
        screen.line()
        screen.line(letter.trace.rstrip() or "(no traceback)")

    screen.document(document, draw)


@dlq.command(epilog=examples("kafkaesque tasks dlq redrive shop tasks.shop/3/17",
                             "kafkaesque tasks dlq redrive shop --task charge",
                             "kafkaesque tasks dlq redrive shop --all"))  # fmt: skip
@click.argument("queue")
@_choice
@client_options()
def redrive(connection: ClusterConnection, screen: Screen, queue: str, **choice: Any) -> None:
    """Send dead letters back to their queue as first attempts.

    A letter is redriven once: one transaction adds the call to the queue and removes the letter. Letters
    about records of other topics cannot be redriven; they are skipped and listed.
    """
    _end(connection, screen, queue, choice, "redriven")


@dlq.command(epilog=examples("kafkaesque tasks dlq drop shop tasks.shop/3/17",
                             "kafkaesque tasks dlq drop shop --reason unreadable"))  # fmt: skip
@click.argument("queue")
@_choice
@client_options()
def drop(connection: ClusterConnection, screen: Screen, queue: str, **choice: Any) -> None:
    """Delete dead letters permanently."""
    _end(connection, screen, queue, choice, "dropped")


def _end(
    connection: ClusterConnection, screen: Screen, queue: str, choice: Mapping[str, Any], verb: str
) -> None:
    from kafkaesque.client.dead_letters import ALL_LETTERS, DeadLetterQueue, LetterSelection

    selection = LetterSelection(choice["ids"], choice["task_name"], choice["reason"])
    if selection == ALL_LETTERS and not choice["everything"]:
        raise usage("Select letters by ID, --task, --reason or --all.")

    async def end(log: KafkaLog) -> tuple[list[str], list[str]]:
        async with DeadLetterQueue.open(log, queue) as letters:
            chosen = list((await letters.read(selection)).values())
            if verb == "redriven":
                done = await letters.redrive(chosen)
                return [one.id for one in done.redriven], [one.id for one in done.skipped]
            await letters.drop(chosen)
            return [letter.id for letter in chosen], []

    ended, skipped = run_with_log(connection, end)
    document = {verb: len(ended), "ids": ended, **({"skipped": skipped} if skipped else {})}

    def draw() -> None:
        screen.line(f"{len(ended)} letters {verb}")
        if skipped:
            screen.line(
                f"{len(skipped)} skipped: their records came from a topic that is not a queue"
            )

    screen.document(document, draw)


def _read(
    connection: ClusterConnection, queue: str, selection: LetterSelection
) -> Mapping[str, DeadLetter]:
    from kafkaesque.client.dead_letters import read_dead_letters

    letters: Mapping[str, DeadLetter] = run_with_log(
        connection, lambda log: read_dead_letters(log, queue, selection)
    )
    return letters


def run_with_log(
    connection: ClusterConnection, operation: Callable[[KafkaLog], Coroutine[Any, Any, Any]]
) -> Any:
    """Run one operation on the log; its errors become failures of the command."""
    from kafkaesque.client.dead_letters import LetterUnknown, RedriveRefused
    from kafkaesque.client.kafka import KafkaLog
    from kafkaesque.client.ports import LogError, TopicUnknown
    from kafkaesque.tasks.errors import TaskRefused

    connection.reach()

    async def run() -> Any:
        log = KafkaLog(connection.bootstrap, connection.properties, client_id="kafkaesque-cli")
        return await operation(log)

    try:
        return asyncio.run(run())
    except TopicUnknown as error:
        raise TargetNotFound(
            str(error), "a queue has the name of its application, or its own name"
        ) from None
    except LetterUnknown as error:
        raise TargetNotFound(str(error), f"`tasks dlq ls {error.queue}` lists them") from None
    except (LogError, TaskRefused, RedriveRefused) as error:
        raise CommandFailure(str(error)) from None


def _row(letter: DeadLetter) -> dict[str, Any]:
    return {
        "id": letter.id,
        "task": letter.task,
        "reason": letter.reason,
        "failure": letter.failure,
        "attempts": letter.attempts,
        "dead_at": iso_time(letter.dead_ms),
    }


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")
