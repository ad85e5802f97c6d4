"""`kafkaesque produce`: writes records from standard input or files to a topic."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Any

import click
from confluent_kafka import KafkaError

from kafkaesque.admin.connection import PROBE_TIMEOUT_S_MAX, ClusterConnection
from kafkaesque.admin.errors import FIXES, AdminError
from kafkaesque.admin.record_writer import OutgoingRecord, RecordWriter, open_producer
from kafkaesque.cli.failures import CommandFailure, ExitCode, usage
from kafkaesque.cli.offset_spec import parse_time_ms
from kafkaesque.cli.options import client_options, complete_topics, examples, read_pair
from kafkaesque.cli.progress import ProgressMeter
from kafkaesque.cli.record_input import InputError, InputFormat, read_records
from kafkaesque.cli.record_output import unescape
from kafkaesque.cli.render import Screen
from kafkaesque.model.setting import INT32_MAX, INT64_MAX

HINTS = {
    **FIXES,
    KafkaError.INVALID_RECORD: "a compacted topic requires a key in every record: -k, --key-separator",
    KafkaError.MSG_SIZE_TOO_LARGE: "raise max.message.bytes of the topic (kafkaesque topic alter) "
    "and, above 1 MB, the client's own -X message.max.bytes=N",
    KafkaError._UNKNOWN_PARTITION: "`kafkaesque topic describe` lists the partitions",
}
TIMED_OUT_HINT = (
    "no broker accepted it in time: the leader is down, slow or has too few in-sync replicas, or its disk "
    "rejects writes (see its log and /readyz); run `kafkaesque doctor`, or raise --timeout"
)
"""Every cause that a timeout can have: librdkafka does not report the errors before it."""


def _read_time(_ctx: click.Context, _param: click.Parameter, text: str | None) -> int | None:
    try:
        if text is None:
            return None
        number = int(text) if text.isdecimal() else parse_time_ms(text)
        if not 0 <= number <= INT64_MAX:
            raise ValueError(text)
        return number
    except ValueError:
        raise click.BadParameter(
            f"'{text}' is neither milliseconds nor an ISO time, such as 2026-01-31T08:00:00Z."
        ) from None


@click.command(
    epilog=examples(
        "echo hello | kafkaesque produce greetings",
        "kafkaesque produce orders orders.txt --key-separator : --compression zstd",
        'echo \'{"key": "a", "value": {"n": 1}}\' | kafkaesque produce orders --format json',
        "kafkaesque produce images cat.jpg --format raw -k cat -H type=image/jpeg",
        "echo a: | kafkaesque produce users --key-separator : -Z ''     # a tombstone for key a",
        "kafkaesque consume a --json | kafkaesque produce b --format json   # copy a topic",
    )
)
@click.argument("topic", shell_complete=complete_topics)
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option(
    "--format",
    "form",
    type=click.Choice(["lines", "json", "raw"]),
    default="lines",
    show_default=True,
    help="One record per line, one JSON object per line, or a whole file as one value.",
)
@click.option(
    "-K",
    "--key-separator",
    metavar="TEXT",
    help="Text between key and value on a line. \\t is a tab.",
)
@click.option("-Z", "--null-value", metavar="TEXT", help="Text that means null.")
@click.option("--base64", "is_base64", is_flag=True, help="Keys and values are base64.")
@click.option("-k", "--key", metavar="TEXT", help="Key of every record.")
@click.option(
    "-H",
    "--header",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    help="Header of every record; may be repeated.",
)
@click.option(
    "-p",
    "--partition",
    type=click.IntRange(0, INT32_MAX),
    metavar="N",
    help="Partition of every record.  [default: by key]",
)
@click.option(
    "--timestamp",
    callback=_read_time,
    metavar="TIME",
    help="Timestamp of every record: ISO time or ms.  [default: now]",
)
@click.option(
    "-z",
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
    help="Compression of batches.",
)
@click.option(
    "--acks",
    type=click.Choice(["0", "1", "all"]),
    default="all",
    show_default=True,
    help="Replicas that must have a record: none, the leader, or all in sync.",
)
@click.option(
    "--idempotent/--no-idempotent",
    default=None,
    help="Retries make no duplicates.  [default: on with acks=all]",
)
@click.option("-q", "--quiet", is_flag=True, help="Print no progress and no summary.")
@client_options(timeout_s=30.0)
def produce(
    topic: str,
    files: tuple[str, ...],
    connection: ClusterConnection,
    screen: Screen,
    **options: Any,
) -> int:
    """Write records to TOPIC from FILES, or from standard input.

    Uses the partitioner of the Java client. Exits with 1 if a record was rejected; the other records
    are written.
    """
    form, template = _input(options)
    acks, idempotent = options["acks"], options["idempotent"]
    if idempotent and acks != "all":
        raise usage("--idempotent needs --acks all.")
    producer = open_producer(
        connection,
        topic,
        acks=acks,
        idempotent=idempotent if idempotent is not None else acks == "all",
        compression=options["compression"],
    )
    quiet = options["quiet"] or screen.as_json
    inputs = Inputs(files)
    visible = not quiet and not inputs.is_typed
    input_error = None
    with ProgressMeter(
        f"writing {topic}", visible=visible, total=inputs.size_bytes, position=inputs.position
    ) as meter:
        writer = RecordWriter(producer, topic, lambda size_bytes: meter.add(1, size_bytes))
        try:
            _write_all(writer, inputs, form, template)
        except InputError as error:
            input_error = f"{inputs.name}: {error}"
        finally:
            writer.finish()
    _show_failures(writer, connection)
    if input_error:
        CommandFailure(
            input_error,
            "correct it, and send the input from this line on: earlier records were written",
        ).show()
    summary: dict[str, Any] = {**meter.summary(), "failed": writer.failed}
    if input_error:
        summary["input_error"] = input_error
    if screen.as_json:
        screen.document(summary, lambda: None)
    elif not options["quiet"]:
        screen.note(meter.sentence("written"))
    return int(ExitCode.FAILED if writer.failed or input_error else ExitCode.OK)


def _input(options: dict[str, Any]) -> tuple[InputFormat, OutgoingRecord]:
    separator, null_marker = options["key_separator"], options["null_value"]
    if separator is not None and options["form"] != "lines":
        raise usage("--key-separator needs --format lines.")
    if separator == "":
        raise usage("--key-separator cannot be empty.")
    form = InputFormat(
        options["form"],
        None if separator is None else unescape(separator),
        None if null_marker is None else null_marker.encode(),
        options["is_base64"],
    )
    headers = tuple((name, value.encode()) for name, value in map(read_pair, options["headers"]))
    key = options["key"]
    template = OutgoingRecord(
        0,
        None,
        None if key is None else key.encode(),
        headers,
        options["partition"],
        options["timestamp"],
    )
    return form, template


class Inputs:
    """The files to read, in order, and the position of the reading."""

    def __init__(self, files: tuple[str, ...]) -> None:
        self._names = files or ("-",)
        self.name = ""
        """The input that is being read, for error messages."""
        self._before_bytes = 0
        self._stream: IO[bytes] | None = None
        self.is_typed = "-" in self._names and sys.stdin.isatty()

    @property
    def size_bytes(self) -> int | None:
        """Total size if all inputs are regular files, else None."""
        paths = [Path(name) for name in self._names]
        if not all(path.is_file() for path in paths):
            return None
        return sum(path.stat().st_size for path in paths)

    def position(self) -> int:
        stream = self._stream
        return self._before_bytes + (stream.tell() if stream and stream.seekable() else 0)

    def open_each(self) -> Iterator[IO[bytes]]:
        for name in self._names:
            self.name = "stdin" if name == "-" else name
            if name == "-":
                yield sys.stdin.buffer
                continue
            with open(name, "rb") as stream:
                self._stream = stream
                yield stream
                self._before_bytes, self._stream = self.position(), None


def _write_all(
    writer: RecordWriter, inputs: Inputs, form: InputFormat, template: OutgoingRecord
) -> None:
    with writer.polling() if inputs.is_typed else nullcontext():
        for stream in inputs.open_each():
            for record in read_records(stream, form, template):
                writer.write(record, inputs.name)


def _show_failures(writer: RecordWriter, connection: ClusterConnection) -> None:
    hints = set()
    for source, number, error in writer.failures:
        CommandFailure(f"{source}:{number}: {error.str()} ({error.name()})").show()
        hints.add(HINTS.get(error.code(), ""))
    if writer.failed > len(writer.failures):
        CommandFailure(f"... and {writer.failed - len(writer.failures):,} more like these").show()
    if writer.timed_out:
        hints.update(_why_timed_out(connection))
    for hint in sorted(hints - {""}):
        click.echo(f"  {click.style('fix:', bold=True)} {hint}", err=True)


def _why_timed_out(connection: ClusterConnection) -> list[str]:
    """Full disks, if the brokers answer soon; otherwise a general hint."""
    # Imported late: a command that succeeds starts faster without the wire protocol.
    from kafkaesque.admin.full_disks import full_disks

    timeout_s = min(connection.timeout_s, PROBE_TIMEOUT_S_MAX)
    try:
        found = full_disks(connection.with_timeout(timeout_s).cluster)
    except AdminError:
        found = []
    return found or [TIMED_OUT_HINT]
