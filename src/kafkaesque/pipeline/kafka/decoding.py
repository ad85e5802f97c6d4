"""Fetched bytes to columns: selects batches, verifies checksums, decompresses, decodes records.

Records are decoded by `_decoder.c`, or by `plain_decoder.py` where that was not built; both return
the same buffers. The socket is in `connection.py`, the names of the columns in `columns.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple

from kafkaesque.model.errors import CorruptMessage, InvalidRecord, KafkaError
from kafkaesque.model.limits import RECORDS_DECOMPRESSED_BYTES_MAX
from kafkaesque.pipeline.errors import PipelineError
from kafkaesque.records.batch import BatchHeader, read_header, verify_crc
from kafkaesque.records.compression import decompress
from kafkaesque.records.layout import HEADER_SIZE_BYTES, LENGTH_OVERHEAD_BYTES, LENGTH_POSITION

_ABORT_MARKER: Final = 0

StringColumn = tuple[bytes, bytes, bytes | None]
"""Offsets (int32), data, validity bits or None if nothing is null."""
HeaderColumn = tuple[bytes, bytes | None, int, StringColumn, StringColumn]
"""List offsets, validity of the lists, count of headers, their keys, their values."""


class Columns(NamedTuple):
    """The buffers of `rows` records in Arrow's layout."""

    rows: int
    keys: StringColumn
    values: StringColumn
    offsets: bytes
    timestamps_us: bytes
    headers: HeaderColumn | None


class BatchBody(NamedTuple):
    """The decompressed records of one batch, and fields of its header."""

    data: memoryview
    base_offset: int
    base_timestamp: int
    append_time: int
    """The timestamp of every record, or -1 if each has its own."""
    last_offset_delta: int
    record_count: int


Decoder = Callable[[list[BatchBody], int, int, bool], tuple[Any, ...]]


class RecordsDamaged(PipelineError):
    """A batch has a wrong checksum or malformed records."""


def load_decoder(*, compiled: bool | None = None) -> tuple[str, Decoder]:
    """The name and function of the decoder. `compiled` requires one of the two."""
    if compiled is not False:
        try:
            decode: Decoder = import_module("kafkaesque.pipeline._decoder").decode
        except ImportError as error:
            if compiled:
                raise PipelineError(f"the compiled decoder cannot be loaded: {error}") from error
        else:
            return "compiled", decode
    from kafkaesque.pipeline.kafka.plain_decoder import decode as plain

    return "plain", plain


class Scan(NamedTuple):
    """The result of a pass over the batch headers of a fetched chunk."""

    bodies: list[tuple[int, BatchHeader]]
    """Position and header of each batch whose records are wanted."""
    next_offset: int
    """Where the next fetch continues; at least the requested offset."""


class AbortedTransactions:
    """The aborted transactions that a read_committed Fetch reports.

    `aborted` are (producer id, first offset) of transactions that overlap the chunk. A producer is in
    an aborted transaction from that offset until its abort marker
    (org.apache.kafka.clients.consumer.internals.CompletedFetch).
    """

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        self._starts = sorted(aborted, key=lambda pair: pair[1], reverse=True)
        self._open: set[int] = set()

    def hides(self, header: BatchHeader, view: memoryview, position: int) -> bool:
        """Whether a reader must not see the batch. Must be called for each batch in order."""
        if header.producer_id < 0:
            return header.is_control
        while self._starts and self._starts[-1][1] <= header.last_offset:
            self._open.add(self._starts.pop()[0])
        if header.is_control:
            if _marker_kind(view, position, header) == _ABORT_MARKER:
                self._open.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._open


def scan(
    chunk: memoryview, from_offset: int, until_offset: int, aborted: AbortedTransactions
) -> Scan:
    """Finds the complete batches of a chunk that may hold records of [from, until).

    The first batch may begin before `from_offset`. The last may be cut off by the size limit of the
    Fetch and is then left for the next one.
    """
    found: list[tuple[int, BatchHeader]] = []
    position, next_offset, size_bytes = 0, from_offset, len(chunk)
    try:
        while size_bytes - position >= HEADER_SIZE_BYTES and next_offset < until_offset:
            length = int.from_bytes(
                chunk[position + LENGTH_POSITION : position + LENGTH_OVERHEAD_BYTES], "big"
            )
            if position + length + LENGTH_OVERHEAD_BYTES > size_bytes:
                break
            header = read_header(chunk, position)
            hidden = aborted.hides(header, chunk, position)
            if header.next_offset > from_offset and not hidden and header.record_count:
                found.append((position, header))
            next_offset = max(next_offset, header.next_offset)
            position += header.size_bytes
    except KafkaError as error:
        raise RecordsDamaged(
            f"a batch at or after offset {next_offset} cannot be read: {error}"
        ) from error
    return Scan(found, next_offset)


def decode(
    decoder: Decoder,
    chunk: memoryview,
    found: Sequence[tuple[int, BatchHeader]],
    offsets: tuple[int, int],
    with_headers: bool,
) -> Columns:
    """Decodes the records of [from, until) in the batches found by `scan`; verifies each checksum."""
    bodies = []
    for position, header in found:
        try:
            verify_crc(chunk, header, position)
            raw = chunk[position + HEADER_SIZE_BYTES : position + header.size_bytes]
            data = (
                memoryview(decompress(header.codec, raw, RECORDS_DECOMPRESSED_BYTES_MAX))
                if header.codec
                else raw
            )
        except (CorruptMessage, InvalidRecord, KafkaError) as error:
            raise RecordsDamaged(f"batch at offset {header.base_offset}: {error}") from error
        append_time = header.max_timestamp if header.uses_append_time else -1
        bodies.append(
            BatchBody(
                data,
                header.base_offset,
                header.base_timestamp,
                append_time,
                header.last_offset_delta,
                header.record_count,
            )
        )
    try:
        return Columns(*decoder(bodies, offsets[0], offsets[1], with_headers))
    except ValueError as error:
        raise RecordsDamaged(str(error)) from error


def _marker_kind(view: memoryview, position: int, header: BatchHeader) -> int:
    """0 for abort, 1 for commit: the second int16 of the control record's key (KIP-98).

    The record is: length, attributes, two deltas of one byte each, the key's length, then the key
    (version int16, type int16). A marker batch has one record, with deltas of zero.
    """
    body = position + HEADER_SIZE_BYTES
    end = position + header.size_bytes
    # The record's length takes one or two bytes; attributes and two zero deltas follow.
    length_bytes = 1 if view[body] < 0x80 else 2
    key = body + length_bytes + 3 + 1
    if key + 4 > end:
        raise InvalidRecord("a transaction marker is truncated")
    return int.from_bytes(view[key + 2 : key + 4], "big")
