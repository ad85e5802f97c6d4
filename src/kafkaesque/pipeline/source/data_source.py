"""`format("kafkaesque")`: the Python engine as a data source (pyspark's Python Data Source API).

Spark runs the driver side of a reader in a separate process and its `read` in worker processes. Both
receive a serialized copy, so nothing here opens a socket before it is needed. Offsets are planned in
`planning.py`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from kafkaesque.pipeline.kafka.fetching import read_range
from kafkaesque.pipeline.rules.offsets import OffsetRange, Offsets, from_spark, to_spark
from kafkaesque.pipeline.source.options import KafkaReadOptions, read_options
from kafkaesque.pipeline.source.planning import Planner

FORMAT = "kafkaesque"
IDLE_WAIT_S = 0.05
"""How long to wait for new records before reporting none: each poll of an idle source by Spark costs
two calls into Python."""
_IDLE_POLL_S = 0.01

SCHEMA = (
    "key binary, value binary, topic string, partition int, offset long, "
    "timestamp timestamp, timestampType int"
)
HEADERS = "headers array<struct<key: string, value: binary>>"


class TopicSource(DataSource):
    """A subscription, read as a stream or as a batch."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        # Spark's mapping is case-insensitive; a plain copy would not be.
        self._given = {name.lower(): value for name, value in options.items() if name != "path"}

    def schema(self) -> str:
        with_headers = self._given.get("includeheaders", "false").lower() == "true"
        return f"{SCHEMA}, {HEADERS}" if with_headers else SCHEMA

    def reader(self, schema: StructType) -> TopicBatchReader:
        return TopicBatchReader(read_options(self._given, streaming=False))

    def streamReader(self, schema: StructType) -> TopicStreamReader:
        return TopicStreamReader(read_options(self._given, streaming=True))


class RangePartition(InputPartition):
    """The range of offsets that one task reads."""

    def __init__(self, wanted: OffsetRange) -> None:
        super().__init__(wanted)
        self.range = wanted


class TopicBatchReader(DataSourceReader):
    """Reads [start, end), resolved when the query is planned."""

    def __init__(self, options: KafkaReadOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        planner = Planner(self._options)
        try:
            start = planner.resolve(self._options.start)
            end = planner.resolve(self._options.end)
            return [RangePartition(item) for item in planner.ranges(start, end)]
        finally:
            planner.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition, self._options)


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches with admission control.

    `commit` and `stop` are not implemented: Spark calls the first one batch late, the second never.
    """

    def __init__(self, options: KafkaReadOptions) -> None:
        self._options = options
        self._planner: Planner | None = None
        self._target: dict[tuple[str, int], int] | None = None
        self._latest: Offsets = {}
        self._waiting_since_s: float | None = None

    def _plan(self) -> Planner:
        if self._planner is None:
            self._planner = Planner(self._options)
        return self._planner

    def initialOffset(self) -> dict[str, Any]:
        # Spark calls this again after a crash in the first batch and must get the same result. `read_stream`
        # has already replaced "latest" by pinned numbers.
        return dict(to_spark(self._plan().resolve(self._options.start)))

    def getDefaultReadLimit(self) -> ReadLimit:
        rows_max = self._options.rows_max
        return ReadAllAvailable() if rows_max is None else ReadMaxRows(rows_max)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._plan().latest()

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begin = from_spark(start)
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        latest = self._wait_for_records(begin)
        if latest == begin or self._should_wait(begin, latest):
            return dict(start)
        self._waiting_since_s = None
        return dict(to_spark(self._plan().next_end(begin, latest, rows_max)))

    def _wait_for_records(self, begin: Offsets) -> Offsets:
        """The ends of the log, after a short wait if nothing is new."""
        if self._target is not None:
            self._latest = self._target
            return self._target
        deadline = time.monotonic() + IDLE_WAIT_S
        while True:
            self._latest = self._plan().latest()
            if self._latest != begin or time.monotonic() >= deadline:
                return self._latest
            time.sleep(_IDLE_POLL_S)

    def _should_wait(self, begin: Offsets, latest: Offsets) -> bool:
        """Whether there are fewer than minOffsetsPerTrigger and maxTriggerDelay has not passed."""
        rows_min = self._options.rows_min
        if rows_min is None or self._target is not None:
            return False
        now = time.monotonic()
        if self._waiting_since_s is None:
            self._waiting_since_s = now
        rows = sum(end - begin.get(partition, 0) for partition, end in latest.items())
        return rows < rows_min and (now - self._waiting_since_s) * 1000 < self._options.delay_ms_max

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return dict(to_spark(self._latest)) if self._latest else None

    def partitions(
        self, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> Sequence[InputPartition]:
        ranges = self._plan().ranges(from_spark(start), from_spark(end))
        return [RangePartition(item) for item in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition, self._options)


def _read(partition: InputPartition, options: KafkaReadOptions) -> Iterator[pa.RecordBatch]:
    """Reads a planned range. If none was planned, Spark passes its own partition, which has no rows."""
    if not isinstance(partition, RangePartition):
        return iter(())
    return read_range(partition.range, options.read)
