"""Fetched bytes to columns: which batches count, their checksum, inflating, and the walk.

The walk itself is `_decoder.c` where it was built, and `plain_decoder.py` where not; both give the
same buffers. Not here: the socket, and the names of the columns (`columns.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple

from kafkaesque.model.errors import CorruptMessage, InvalidRecord, KafkaError
from kafkaesque.model.limits import RECORDS_DECOMPRESSED_BYTES_MAX
from kafkaesque.pipeline.errors import PipelineError
from kafkaesque.records.batch import (
    HEADER_SIZE_BYTES,
    LENGTH_OVERHEAD_BYTES,
    BatchHeader,
    read_header,
    verify_crc,
)
from kafkaesque.records.compression import decompress

_LENGTH_POSITION: Final = 8
_ABORT_MARKER: Final = 0

StringColumn = tuple[bytes, bytes, bytes | None]
"""Offsets (int32), data, validity bits or None where nothing is null."""
HeaderColumn = tuple[bytes, bytes | None, int, StringColumn, StringColumn]
"""List offsets, validity of the lists, count of headers, their keys, their values."""


class Columns(NamedTuple):
    """The buffers of `rows` records, as Arrow lays them out."""

    rows: int
    keys: StringColumn
    values: StringColumn
    offsets: bytes
    timestamps_us: bytes
    headers: HeaderColumn | None


class Body(NamedTuple):
    """One batch's records, inflated, and what its header says of them."""

    data: memoryview
    base_offset: int
    base_timestamp: int
    append_time: int
    """Of every record, or -1 where each has its own."""
    last_offset_delta: int
    record_count: int


Decoder = Callable[[list[Body], int, int, bool], tuple[Any, ...]]


class RecordsDamaged(PipelineError):
    """A batch that does not match its checksum, or whose records are malformed."""


def load_decoder(*, compiled: bool | None = None) -> tuple[str, Decoder]:
    """Name and function of the walk; `compiled` insists on one of the two."""
    if compiled is not False:
        try:
            decode: Decoder = import_module("kafkaesque.pipeline._decoder").decode
        except ImportError as error:
            if compiled:
                raise PipelineError(f"there is no compiled decoder: {error}") from error
        else:
            return "compiled", decode
    from kafkaesque.pipeline.kafka.plain_decoder import decode as plain

    return "plain", plain


class Scan(NamedTuple):
    """What a pass over the headers of a fetched chunk found."""

    bodies: list[tuple[int, BatchHeader]]
    """Position and header of each batch whose records are wanted."""
    next_offset: int
    """Where the next fetch goes on; at least the offset asked for."""


class AbortedRanges:
    """Which producers' batches were aborted, as a fetch of read_committed tells it.

    `aborted` are (producer, first offset) of transactions that overlap the chunk. A producer is in
    an aborted transaction from its first offset on until its own abort marker
    (org.apache.kafka.clients.consumer.internals.CompletedFetch).
    """

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        self._starts = sorted(aborted, key=lambda pair: pair[1], reverse=True)
        self._open: set[int] = set()

    def drops(self, header: BatchHeader, view: memoryview, position: int) -> bool:
        """Whether the batch's records must not be seen. To be asked of each batch in order."""
        if header.producer_id < 0:
            return header.is_control
        while self._starts and self._starts[-1][1] <= header.last_offset:
            self._open.add(self._starts.pop()[0])
        if header.is_control:
            if _marker_kind(view, position, header) == _ABORT_MARKER:
                self._open.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._open


def scan(chunk: memoryview, from_offset: int, until_offset: int, aborted: AbortedRanges) -> Scan:
    """Find the whole batches of a chunk that may hold records of [from, until).

    The first batch may begin before `from_offset`; the last may be cut by the fetch's limit and is
    then left for the next one.
    """
    found: list[tuple[int, BatchHeader]] = []
    position, next_offset, size_bytes = 0, from_offset, len(chunk)
    try:
        while size_bytes - position >= HEADER_SIZE_BYTES and next_offset < until_offset:
            length = int.from_bytes(
                chunk[position + _LENGTH_POSITION : position + LENGTH_OVERHEAD_BYTES], "big"
            )
            if position + length + LENGTH_OVERHEAD_BYTES > size_bytes:
                break
            header = read_header(chunk, position)
            dropped = aborted.drops(header, chunk, position)
            if header.next_offset > from_offset and not dropped and header.record_count:
                found.append((position, header))
            next_offset = max(next_offset, header.next_offset)
            position += header.size_bytes
    except KafkaError as error:
        raise RecordsDamaged(
            f"a batch behind offset {next_offset} cannot be read: {error}"
        ) from error
    return Scan(found, next_offset)


def decode(
    walk: Decoder,
    chunk: memoryview,
    found: Sequence[tuple[int, BatchHeader]],
    offsets: tuple[int, int],
    with_headers: bool,
) -> Columns:
    """The records of [from, until) in the batches that `scan` found, each checksum verified."""
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
            raise RecordsDamaged(f"the batch at offset {header.base_offset}: {error}") from error
        append_time = header.max_timestamp if header.uses_append_time else -1
        bodies.append(
            Body(
                data,
                header.base_offset,
                header.base_timestamp,
                append_time,
                header.last_offset_delta,
                header.record_count,
            )
        )
    try:
        return Columns(*walk(bodies, offsets[0], offsets[1], with_headers))
    except ValueError as error:
        raise RecordsDamaged(str(error)) from error


def _marker_kind(view: memoryview, position: int, header: BatchHeader) -> int:
    """0 for abort, 1 for commit: the second int16 of the control record's key (KIP-98).

    The record is length, attributes, two deltas of one byte each and the key's length, then the
    key: version int16, type int16. Markers carry one record, with deltas of zero.
    """
    body = position + HEADER_SIZE_BYTES
    end = position + header.size_bytes
    # The record's own length is one or two bytes: what follows is attributes and two zero deltas.
    length_bytes = 1 if view[body] < 0x80 else 2
    key = body + length_bytes + 3 + 1
    if key + 4 > end:
        raise InvalidRecord("a transaction marker is cut")
    return int.from_bytes(view[key + 2 : key + 4], "big")
