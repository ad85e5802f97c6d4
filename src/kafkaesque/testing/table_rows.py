"""A table in a compacted topic: rows that are overwritten again and again, and read back.

Benchmarks and fault runs need millions of records quickly: batches are encoded once, and a new version
of the rows changes only the number in them.
"""

from __future__ import annotations

import time
from typing import Final

from kafkaesque.model.errors import ErrorCode
from kafkaesque.model.ids import Offset, TimestampMs
from kafkaesque.records.batch import iter_batches, reseal
from kafkaesque.records.codec import Record, decode_batch, encode_batch
from kafkaesque.testing.wire_call import wire_call
from kafkaesque.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kafkaesque.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

ROWS_PER_BATCH: Final = 1000
_PRODUCE_VERSION: Final = 9
_FETCH_VERSION: Final = 12
_MARK: Final = b"VVVVVVVV"
_TIMEOUT_S: Final = 60.0
_RETRY_S: Final = 0.1
_FETCH_BYTES: Final = 4 << 20


class RowsRefused(Exception):
    """The broker did not accept a batch or a read within the time allowed."""


class TableRows:
    """`count` rows of `row_bytes` in partition 0 of `topic`, on the broker at `address`."""

    def __init__(self, address: str, topic: str, count: int, row_bytes: int = 100) -> None:
        self.address = address
        self.topic = topic
        self.count = count
        self.versions: list[int] = []
        """The newest acknowledged version of each batch of rows."""
        self._padding = b"." * (row_bytes - len(_MARK))
        self._templates = [self._encode(first) for first in range(0, count, ROWS_PER_BATCH)]
        self.versions = [0] * len(self._templates)

    @property
    def batches(self) -> int:
        return len(self._templates)

    def _encode(self, first: int) -> bytes:
        now_ms = TimestampMs(time.time_ns() // 1_000_000)
        last = min(first + ROWS_PER_BATCH, self.count)
        value = _MARK + self._padding
        rows = [Record(Offset(0), now_ms, b"%08d" % row, value) for row in range(first, last)]
        return bytes(encode_batch(rows))

    def write(self, number: int, version: int, patience_s: float = 60.0) -> None:
        """Write one batch of rows with acks=all; retry until it is acknowledged."""
        batch = bytearray(self._templates[number].replace(_MARK, b"%08d" % version))
        reseal(batch, 0, len(batch))
        data = PartitionProduceData(index=0, records=memoryview(batch))
        request = ProduceRequest(
            acks=-1,
            timeout_ms=int(_TIMEOUT_S * 1000),
            topic_data=[TopicProduceData(name=self.topic, partition_data=[data])],
        )
        deadline = time.monotonic() + patience_s
        while not self._is_accepted(request):
            if time.monotonic() > deadline:
                raise RowsRefused(f"batch {number} of {self.topic}")
            time.sleep(_RETRY_S)
        self.versions[number] = version

    def _is_accepted(self, request: ProduceRequest) -> bool:
        try:
            answer = wire_call(self.address, request, _PRODUCE_VERSION, ProduceResponse, _TIMEOUT_S)
        except OSError:
            return False
        return answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE

    def wrong(self) -> list[str]:
        """Read the topic from its beginning; returns up to ten differences from what was acknowledged."""
        newest, found, last_offset = [-1] * self.count, [], -1
        offset = Offset(0)
        while True:
            records, end = self._fetch(offset)
            for position, header in iter_batches(records):
                for record in decode_batch(records, position):
                    if record.offset <= last_offset:
                        found.append(f"offset {record.offset} comes after {last_offset}")
                    last_offset = record.offset
                    newest[int(record.key or b"")] = int((record.value or b"")[: len(_MARK)])
                offset = header.next_offset
            if offset >= end:
                break
        for row, version in enumerate(newest):
            expected = self.versions[row // ROWS_PER_BATCH]
            # A batch whose acknowledgement was lost with its broker may still be there.
            if version < expected:
                found.append(f"row {row} is at version {version}, not {expected}")
        return found[:10]

    def _fetch(self, offset: Offset) -> tuple[bytes, int]:
        wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES)
        request = FetchRequest(
            max_wait_ms=100,
            min_bytes=1,
            max_bytes=_FETCH_BYTES,
            topics=[FetchTopic(topic=self.topic, partitions=[wanted])],
        )
        answer = wire_call(self.address, request, _FETCH_VERSION, FetchResponse, _TIMEOUT_S)
        found = answer.responses[0].partitions[0]
        if found.error_code:
            raise RowsRefused(
                f"reading {self.topic} at {offset}: {ErrorCode(found.error_code).name}"
            )
        return bytes(found.records or b""), found.high_watermark
