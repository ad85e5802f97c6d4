"""`kafkaesque produce`: writes records from standard input or files to a topic."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import IO, Any

import click
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from kafkaesque.cli.client import DISK_HINT, PROBE_TIMEOUT_S_MAX, Connection, kafka_error
from kafkaesque.cli.failures import CommandFailure, ExitCode, TargetNotFound, usage
from kafkaesque.cli.offset_spec import parse_time_ms
from kafkaesque.cli.options import client_options, complete_topics, examples, read_pair
from kafkaesque.cli.progress import ProgressMeter
from kafkaesque.cli.record_input import InputError, InputFormat, OutgoingRecord, read_records
from kafkaesque.cli.record_output import unescape
from kafkaesque.cli.render import Screen
from kafkaesque.model.setting import INT32_MAX, INT64_MAX

QUEUE_RECORDS_MAX = 100_000
QUEUE_KBYTES_MAX = 64 * 1024
POLL_EVERY_RECORDS = 100
FAILURES_SHOWN_MAX = 20
HINTS = {
    KafkaError.INVALID_RECORD: "a compacted topic requires a key in every record: -k, --key-separator",
    KafkaError.KAFKA_STORAGE_ERROR: DISK_HINT,
    KafkaError.MSG_SIZE_TOO_LARGE: "raise max.message.bytes of the topic (kafkaesque topic alter) "
    "and, above 1 MB, the client's own -X message.max.bytes=N",
    KafkaError._UNKNOWN_PARTITION: "`kafkaesque topic describe` lists the partitions",
}
TIMED_OUT_HINT = (
    "no broker accepted it in time: the leader is down, slow or has too few in-sync replicas, or its disk "
    "rejects writes (see its log and /readyz); run `kafkaesque doctor`, or raise --timeout"
)
"""Every cause that a timeout can have: librdkafka does not report the errors before it."""
AUTO_CREATE_ATTEMPTS = 5
"""Apache Kafka responds to the request that auto-creates a topic before the topic exists."""


def _read_time(_ctx: click.Context, _param: click.Parameter, text: str | None) -> int | None:
    try:
        if text is None:
            return None
        number = int(text) if text.isdecimal() else parse_time_ms(text)
        if not 0 <= number <= INT64_MAX:
            raise ValueError(text)
        return number
    except ValueError:
        raise click.BadParameter(f"'{text}' is neither milliseconds nor an ISO time.") from None


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
    "-p", "--partition", type=click.IntRange(0, INT32_MAX), metavar="N", help="[default: by key]"
)
@click.option(
    "--timestamp", callback=_read_time, metavar="TIME", help="ISO time or ms. [default: now]"
)
@click.option(
    "-z",
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
)
@click.option("--acks", type=click.Choice(["0", "1", "all"]), default="all", show_default=True)
@click.option(
    "--idempotent/--no-idempotent",
    default=None,
    help="Retries make no duplicates. [default: on with acks=all]",
)
@click.option("-q", "--quiet", is_flag=True, help="Print no progress and no summary.")
@client_options(timeout_s=30.0)
def produce(
    topic: str, files: tuple[str, ...], connection: Connection, screen: Screen, **options: Any
) -> int:
    """Write records to TOPIC from FILES, or from standard input.

    Uses the partitioner of the Java client. Exits with 1 if a record was rejected; the other records
    are written.
    """
    form, template = _input(options)
    acks, idempotent = options["acks"], options["idempotent"]
    if idempotent and acks != "all":
        raise usage("--idempotent needs --acks all.")
    producer = connection.producer(
        acks=acks,
        enable_idempotence=idempotent if idempotent is not None else acks == "all",
        compression_type=options["compression"],
        partitioner="murmur2_random",
        message_timeout_ms=int(connection.timeout_s * 1000),
        queue_buffering_max_messages=QUEUE_RECORDS_MAX,
        queue_buffering_max_kbytes=QUEUE_KBYTES_MAX,
    )
    _ensure_topic(connection, producer, topic)
    quiet = options["quiet"] or screen.as_json
    inputs = Inputs(files)
    visible = not quiet and not inputs.is_typed
    with ProgressMeter(
        f"writing {topic}", visible=visible, total=inputs.size_bytes, position=inputs.position
    ) as meter:
        writer = Writer(producer, topic, meter)
        try:
            _write_all(writer, inputs, form, template)
        finally:
            writer.finish()
    if writer.timed_out:
        writer.hints.update(_why_timed_out(connection))
    return _report(screen, writer, quiet=options["quiet"])


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

    def open_each(self) -> Iterator[tuple[str, IO[bytes]]]:
        for name in self._names:
            if name == "-":
                yield "stdin", sys.stdin.buffer
                continue
            with open(name, "rb") as stream:
                self._stream = stream
                yield name, stream
                self._before_bytes, self._stream = self.position(), None


def _ensure_topic(connection: Connection, producer: Producer, topic: str) -> None:
    """Fail at once if the topic does not exist, instead of after minutes of retries.

    A producer's metadata request creates the topic if the broker allows it
    (`auto.create.topics.enable`).
    """
    for _ in range(AUTO_CREATE_ATTEMPTS):
        try:
            found = producer.list_topics(topic, timeout=connection.timeout_s).topics[topic]
        except KafkaException as exception:
            connection.fail(kafka_error(exception), f"write to '{topic}'")
        if found.error is None:
            return
        if found.error.code() not in (
            KafkaError.UNKNOWN_TOPIC_OR_PART,
            KafkaError.LEADER_NOT_AVAILABLE,
        ):
            connection.fail(found.error, f"write to '{topic}'")
        producer.poll(0.2)
    raise TargetNotFound(
        f"there is no topic '{topic}'", f"`kafkaesque topic create {topic}` creates it"
    )


def _why_timed_out(connection: Connection) -> list[str]:
    """Full disks, if the brokers answer soon; otherwise a general hint."""
    # Imported late: a command that succeeds starts faster without the wire protocol.
    from kafkaesque.admin.errors import AdminError
    from kafkaesque.admin.full_disks import full_disks

    timeout_s = min(connection.timeout_s, PROBE_TIMEOUT_S_MAX)
    try:
        found = full_disks(
            Connection(connection.bootstrap, connection.properties, timeout_s).cluster
        )
    except (CommandFailure, AdminError):
        found = []
    return found or [TIMED_OUT_HINT]


class Writer:
    """Passes records to librdkafka and collects delivery reports.

    Memory is bounded by librdkafka's queue: when it is full, `write` waits for deliveries.
    """

    def __init__(self, producer: Producer, topic: str, meter: ProgressMeter) -> None:
        self._producer = producer
        self._topic = topic
        self._meter = meter
        self._since_poll = 0
        self.failed = 0
        self.timed_out = False
        self.failures: list[str] = []
        self.hints: set[str] = set()
        self.input_error: str | None = None

    @property
    def meter(self) -> ProgressMeter:
        return self._meter

    def write(self, record: OutgoingRecord, source: str) -> None:
        optional: dict[str, Any] = {}
        if record.partition is not None:
            optional["partition"] = record.partition
        if record.timestamp_ms is not None:
            optional["timestamp"] = record.timestamp_ms
        if record.headers:
            optional["headers"] = list(record.headers)
        done = partial(self._delivered, source, record.number, record.size_bytes)
        while True:
            try:
                self._producer.produce(
                    self._topic, record.value, record.key, on_delivery=done, **optional
                )
                break
            except BufferError:
                self._producer.poll(0.5)
            except KafkaException as exception:
                self._failed(source, record.number, kafka_error(exception))
                break
        self._since_poll += 1
        if self._since_poll >= POLL_EVERY_RECORDS:
            self._producer.poll(0)
            self._since_poll = 0

    def _delivered(
        self, source: str, number: int, size_bytes: int, error: KafkaError | None, _message: Message
    ) -> None:
        if error is None:
            self._meter.add(1, size_bytes)
        else:
            self._failed(source, number, error)

    def _failed(self, source: str, number: int, error: KafkaError) -> None:
        self.failed += 1
        self.timed_out |= error.code() == KafkaError._MSG_TIMED_OUT
        if len(self.failures) < FAILURES_SHOWN_MAX:
            self.failures.append(f"{source}:{number}: {error.str()} ({error.name()})")
            self.hints.add(HINTS.get(error.code(), ""))

    def finish(self) -> None:
        """Wait for all delivery reports; librdkafka fails records that exceed its timeout."""
        while self._producer.flush(0.2):
            pass

    @contextmanager
    def polling(self) -> Iterator[None]:
        """Poll for delivery reports in a thread while the main thread waits for typed input."""
        over = threading.Event()

        def poll() -> None:
            while not over.is_set():
                self._producer.poll(0.1)

        thread = threading.Thread(target=poll, name="deliveries", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def _write_all(writer: Writer, inputs: Inputs, form: InputFormat, template: OutgoingRecord) -> None:
    with writer.polling() if inputs.is_typed else nullcontext():
        for name, stream in inputs.open_each():
            try:
                for record in read_records(stream, form, template):
                    writer.write(record, name)
            except InputError as error:
                writer.input_error = f"{name}: {error}"
                return


def _report(screen: Screen, writer: Writer, *, quiet: bool) -> int:
    for text in writer.failures:
        CommandFailure(text).show()
    if writer.failed > len(writer.failures):
        CommandFailure(f"... and {writer.failed - len(writer.failures):,} more like these").show()
    for hint in sorted(writer.hints - {""}):
        click.echo(f"  {click.style('fix:', bold=True)} {hint}", err=True)
    if writer.input_error:
        CommandFailure(
            writer.input_error, "records before this line were written; later records were not"
        ).show()
    summary: dict[str, Any] = {**writer.meter.summary(), "failed": writer.failed}
    if writer.input_error:
        summary["input_error"] = writer.input_error
    if screen.as_json:
        screen.document(summary, lambda: None)
    elif not quiet:
        screen.note(writer.meter.sentence("written"))
    return int(ExitCode.FAILED if writer.failed or writer.input_error else ExitCode.OK)
