"""`kafkaesque consume`: prints records of topics to standard output or a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import click

from kafkaesque.admin.connection import ClusterConnection
from kafkaesque.admin.record_reader import (
    RecordRange,
    RecordSelection,
    read_group,
    read_ranges,
    select_ranges,
)
from kafkaesque.admin.rules.offset_reset import OffsetSpec
from kafkaesque.cli.failures import CommandFailure, usage
from kafkaesque.cli.offset_spec import FORMS, parse_offset_spec
from kafkaesque.cli.options import client_options, complete_topics, examples
from kafkaesque.cli.progress import ProgressMeter
from kafkaesque.cli.record_output import Formatter, OutputFormat, make_formatter, unescape
from kafkaesque.cli.render import Screen


def _read_spec(_ctx: click.Context, _param: click.Parameter, text: str | None) -> OffsetSpec | None:
    try:
        return None if text is None else parse_offset_spec(text)
    except ValueError as error:
        raise click.BadParameter(f"{error}.") from None


@click.command(
    epilog=examples(
        "kafkaesque consume orders                      # everything, then stop",
        "kafkaesque consume orders -f --from end        # new records only",
        "kafkaesque consume orders --from -10           # last 10 of each partition",
        "kafkaesque consume orders --from 2026-01-01T12:00:00Z --to 2026-01-02",
        "kafkaesque consume orders --json | jq .value",
        "kafkaesque consume orders --format '%d %p:%o %k=%s\\n'",
        "kafkaesque consume orders --group billing -f   # commits what it printed",
        "kafkaesque consume orders --json --output orders.jsonl",
    )
)
@click.argument("topics", nargs=-1, required=True, shell_complete=complete_topics)
@click.option(
    "--from",
    "start",
    callback=_read_spec,
    metavar="WHERE",
    help=f"Where to start: {FORMS}.  [default: beginning; with --group: the committed offsets]",
)
@click.option(
    "--to",
    "stop",
    callback=_read_spec,
    metavar="WHERE",
    help="Stop before this position.  [default: the current end]",
)
@click.option("-f", "--follow", is_flag=True, help="Wait for new records at the end.")
@click.option(
    "-n",
    "--max",
    "limit",
    type=click.IntRange(min=0),
    metavar="COUNT",
    help="Stop after COUNT records.",
)
@click.option(
    "-p",
    "--partition",
    "partitions",
    multiple=True,
    type=click.IntRange(min=0),
    help="Read only this partition; may be repeated.",
)
@click.option("-g", "--group", metavar="NAME", help="Join this consumer group and commit offsets.")
@click.option(
    "--isolation",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_committed",
    show_default=True,
    help="read_committed skips records of open and aborted transactions.",
)
@click.option("--key", "with_key", is_flag=True, help="Print the key before the value.")
@click.option("--headers", "with_headers", is_flag=True, help="Print the headers before the key.")
@click.option(
    "-K",
    "--key-separator",
    default="\\t",
    show_default=True,
    metavar="TEXT",
    help="Text between headers, key and value.",
)
@click.option(
    "-D",
    "--delimiter",
    default="\\n",
    show_default=True,
    metavar="TEXT",
    help="Text after each record.",
)
@click.option(
    "--format",
    "template",
    metavar="TEMPLATE",
    help="Print each record in this format: %t topic, %p partition, %o offset, %k key, %s value, %h headers, %T time in ms, "
    "%d ISO time, %K %S sizes; \\n \\t \\xHH.",
)
@click.option("-Z", "--null-value", default="", metavar="TEXT", help="Text to print for null.")
@click.option("--hex", "as_hex", is_flag=True, help="Print keys and values in hexadecimal.")
@click.option("--base64", "as_base64", is_flag=True, help="Print keys and values in base64.")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, writable=True),
    metavar="FILE",
    help="Write to a file and show progress.",
)
@client_options(timeout_s=30.0)
def consume(
    topics: tuple[str, ...], connection: ClusterConnection, screen: Screen, **options: Any
) -> None:
    """Print records of TOPICS.

    Without --follow, stops at the current end. With --json, prints one JSON object per line; keys and
    values that are not UTF-8 are in `key_base64` and `value_base64`.

    On a terminal, control characters are shown as escapes; a pipe and --output get the exact bytes.
    """
    formatter = _formatter(options, screen)
    selection = _selection(topics, options)
    if selection.limit == 0:
        return
    output: str | None = options["output"]
    if selection.group is not None:
        connection.describe_topics(selection.topics)
        total = selection.limit
        batches = read_group(connection, selection)
    else:
        ranges = select_ranges(connection, selection)
        total = selection.limit if selection.follow else _total(ranges, selection.limit)
        batches = read_ranges(connection, ranges, selection)
    with (
        _sink(output) as stream,
        ProgressMeter("reading", visible=bool(output), total=total) as meter,
    ):
        _print_batches(batches, formatter, stream, meter)
    if output:
        screen.note(f"{meter.sentence('read')}, in {output}")


def _formatter(options: dict[str, Any], screen: Screen) -> Formatter:
    if screen.as_json and options["template"] is not None:
        raise usage("Use either --json or --format.")
    if options["as_hex"] and options["as_base64"]:
        raise usage("Use either --hex or --base64.")
    form = OutputFormat(
        template=options["template"],
        as_json=screen.as_json,
        with_key=options["with_key"],
        with_headers=options["with_headers"],
        key_separator=unescape(options["key_separator"]),
        delimiter=unescape(options["delimiter"]),
        null_marker=options["null_value"].encode(),
        as_hex=options["as_hex"],
        as_base64=options["as_base64"],
        for_terminal=screen.is_terminal and options["output"] is None,
    )
    try:
        return make_formatter(form)
    except ValueError as error:
        raise usage(f"--format: {error}.") from None


def _selection(topics: tuple[str, ...], options: dict[str, Any]) -> RecordSelection:
    selection = RecordSelection(
        topics=tuple(dict.fromkeys(topics)),
        start=options["start"],
        stop=options["stop"],
        follow=options["follow"],
        limit=options["limit"],
        partitions=options["partitions"],
        group=options["group"],
        committed_only=options["isolation"] == "read_committed",
    )
    if selection.follow and selection.stop is not None:
        raise usage("Use either --follow or --to.")
    if selection.group is None:
        return selection
    if selection.partitions:
        raise usage("Use either --partition or --group: a group assigns the partitions.")
    if selection.stop is not None:
        raise usage("--to cannot be combined with --group: use --max, or read without a group.")
    if selection.start is not None and selection.start.kind not in ("beginning", "end"):
        raise usage(
            "With --group, --from must be beginning or end, and applies only to partitions without "
            "a committed offset. To move a group, use kafkaesque group reset."
        )
    return selection


def _total(ranges: list[RecordRange], limit: int | None) -> int:
    total = sum((item.stop or item.start) - item.start for item in ranges)
    return total if limit is None else min(total, limit)


@contextmanager
def _sink(path: str | None) -> Iterator[IO[bytes]]:
    """The output stream. Errors of writing, such as a full disk, become a CommandFailure."""
    try:
        if path is None:
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        else:
            with open(path, "wb") as stream:
                yield stream
    except BrokenPipeError:
        raise
    except OSError as error:
        where = "standard output" if path is None else path
        raise CommandFailure(
            f"cannot write to {where}: {error.strerror}",
            "set --output to a file in an existing directory on a disk with free space",
        ) from None


def _print_batches(
    batches: Iterator[list[Any]], formatter: Formatter, stream: IO[bytes], meter: ProgressMeter
) -> None:
    """Write and flush each batch before requesting the next: the reader commits a batch only when it
    is resumed, so only written records are committed."""
    for batch in batches:
        data = b"".join(map(formatter, batch))
        stream.write(data)
        stream.flush()
        meter.add(len(batch), len(data))
