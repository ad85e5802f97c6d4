"""Reads ranges of a topic in a worker thread and hands what matches to the event loop.

librdkafka's `consume` gives up to thousands of messages a call; the thread only stops for the
interpreter's own switches, so that pages stay quick while a million records are searched.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from kafkaesque.console.decoding.avro import Schemas
from kafkaesque.console.decoding.detection import Decoder
from kafkaesque.console.messages.query import MessageQuery
from kafkaesque.console.messages.ranges import Range, windows_back
from kafkaesque.console.messages.record import ReadRecord

SCANS_AT_ONCE_MAX: Final = 8
CONSUME_MESSAGES: Final = 5000
CONSUME_SECONDS: Final = 0.25
PROGRESS_SECONDS: Final = 0.2
HAND_OVER_SECONDS: Final = 0.5
SCAN_SECONDS_MAX: Final = 300.0
FOLLOW_SECONDS_MAX: Final = 3600.0
SILENCE_SECONDS_MAX: Final = 10.0
"""A broker that sends nothing of what is there for so long has failed."""


class ScanFailed(Exception):
    """The records cannot be read; the message says why."""


@dataclass(slots=True)
class ScanProgress:
    """How far a scan is. `total` counts what lies in its ranges, `note` says how it ended."""

    scanned: int = 0
    matched: int = 0
    total: int = 0
    seconds: float = 0.0
    is_done: bool = False
    note: str = ""


@dataclass(slots=True)
class ScanBatch:
    """A turn of a scan: some records, and how far it is."""

    records: list[ReadRecord]
    progress: ScanProgress


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """What to read of which topic: `bounds` are the ranges of its partitions."""

    topic: str
    bounds: Mapping[int, Range]
    query: MessageQuery
    follow: bool = False

    @property
    def is_newest_first(self) -> bool:
        return self.query.start.kind == "newest" and not self.follow


@dataclass(slots=True)
class _Scan:
    """The state of one scan, in its thread."""

    plan: ScanPlan
    decoder: Decoder
    consumer: Consumer
    stop: threading.Event
    hand_over: Callable[[ScanBatch], None]
    progress: ScanProgress = field(default_factory=ScanProgress)
    began: float = field(default_factory=time.monotonic)
    told: float = 0.0

    def run(self) -> None:
        plan = self.plan
        self.progress.total = sum(max(0, end - start) for start, end in plan.bounds.values())
        if plan.follow:
            self._follow()
        elif plan.is_newest_first:
            self._newest_first()
        else:
            self._oldest_first()
        if not self.progress.note:
            self.progress.note = "stopped" if self.stop.is_set() else "all read"
        self.progress.is_done = True
        self._tell([])

    def _newest_first(self) -> None:
        """Window by window from the end; within one, records are sorted by time, newest first."""
        limit = self.plan.query.limit
        size = limit if self._matches_all else max(limit, CONSUME_MESSAGES)
        for window in windows_back(self.plan.bounds, size):
            found = [record for batch in self._batches(window) for record in batch]
            found.sort(key=lambda record: (record.timestamp_ms, record.offset), reverse=True)
            if self._take(found):
                return

    def _oldest_first(self) -> None:
        for batch in self._batches(self.plan.bounds):
            batch.sort(key=lambda record: (record.timestamp_ms, record.offset))
            if self._take(batch):
                return

    def _take(self, found: list[ReadRecord]) -> bool:
        """Hand records over; True when there are enough, or enough was read."""
        room = self.plan.query.limit - self.progress.matched
        kept = found[:room]
        self.progress.matched += len(kept)
        if self.progress.matched >= self.plan.query.limit:
            self.progress.note = "limit reached"
        elif self.progress.scanned >= self.plan.query.scan_max:
            self.progress.note = "scan limit reached"
        if kept:
            self._tell(kept)
        return bool(self.progress.note) or self.stop.is_set()

    def _follow(self) -> None:
        starts = {index: end for index, (_, end) in self.plan.bounds.items()}
        self._assign(starts)
        while not self.stop.is_set():
            if time.monotonic() - self.began > FOLLOW_SECONDS_MAX:
                self.progress.note = "followed for an hour; start again to go on"
                return
            messages = self.consumer.consume(CONSUME_MESSAGES, CONSUME_SECONDS)
            found = self._matching(self._valid(messages, {}, {}))
            self.progress.matched += len(found)
            # A flood is shown by its newest records: a page that falls behind shows nothing live.
            self._tell(found[-self.plan.query.limit :])

    @property
    def _matches_all(self) -> bool:
        return self.plan.query.match is None and self.plan.query.key is None

    def _batches(self, ranges: Mapping[int, Range]) -> Iterator[list[ReadRecord]]:
        """The matching records of `ranges`, in the batches that they come in."""
        ends = {index: end for index, (start, end) in ranges.items() if end > start}
        if not ends:
            return
        self._assign({index: ranges[index][0] for index in ends})
        left = dict(ends)
        heard = time.monotonic()
        while left and not self.stop.is_set():
            messages = self.consumer.consume(CONSUME_MESSAGES, CONSUME_SECONDS)
            now = time.monotonic()
            if messages:
                heard = now
            elif now - heard > SILENCE_SECONDS_MAX:
                raise ScanFailed("the brokers send nothing")
            found = self._matching(self._valid(messages, ends, left))
            if found:
                yield found
            if now - self.told > PROGRESS_SECONDS:
                self._tell([])
            if self.progress.scanned >= self.plan.query.scan_max:
                return
            if now - self.began > SCAN_SECONDS_MAX:
                self.progress.note = "took too long"
                return

    def _assign(self, starts: Mapping[int, int]) -> None:
        self.consumer.assign(
            [TopicPartition(self.plan.topic, index, at) for index, at in starts.items()]
        )

    def _valid(
        self, messages: Iterable[Any], ends: Mapping[int, int], left: dict[int, int]
    ) -> Iterator[Any]:
        """Messages within their range; a partition that is through leaves `left`."""
        for message in messages:
            error = message.error()
            if error is not None:
                if error.code() != KafkaError._PARTITION_EOF:
                    raise ScanFailed(error.str())
                left.pop(message.partition(), None)
                continue
            end = ends.get(message.partition())
            if end is not None:
                offset = message.offset()
                if offset >= end - 1:
                    left.pop(message.partition(), None)
                    if offset >= end:
                        continue
            yield message

    def _matching(self, messages: Iterator[Any]) -> list[ReadRecord]:
        match, key, decoder = self.plan.query.match, self.plan.query.key, self.decoder
        found = []
        scanned = 0
        for message in messages:
            scanned += 1
            if key is not None and message.key() != key:
                continue
            record = ReadRecord(
                (message.partition(), message.offset()),
                message.timestamp()[1],
                (message.key(), message.value()),
                message.headers(),
                decoder,
            )
            if match is None or match(record):
                found.append(record)
        self.progress.scanned += scanned
        return found

    def _tell(self, records: list[ReadRecord]) -> None:
        self.told = time.monotonic()
        progress = self.progress
        progress.seconds = self.told - self.began
        copy = ScanProgress(progress.scanned, progress.matched, progress.total, progress.seconds,
                        progress.is_done, progress.note)  # fmt: skip
        self.hand_over(ScanBatch(records, copy))


class Scanner:
    """Runs scans, each in a thread of its own, at most `SCANS_AT_ONCE_MAX`."""

    def __init__(self, properties: Mapping[str, Any], schemas: Schemas) -> None:
        self._properties = dict(properties)
        self._schemas = schemas
        self._threads = concurrent.futures.ThreadPoolExecutor(
            SCANS_AT_ONCE_MAX, thread_name_prefix="scan"
        )
        self.running = 0

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def scan(self, plan: ScanPlan) -> AsyncIterator[ScanBatch]:
        """Ends when the scan does; a reader that stops iterating stops it. ScanFailed."""
        if self.running >= SCANS_AT_ONCE_MAX:
            raise ScanFailed(f"{self.running} scans are under way; try again when one has ended")
        self.running += 1
        loop = asyncio.get_running_loop()
        turns: asyncio.Queue[ScanBatch | None] = asyncio.Queue()
        # Two turns ahead at most: the thread waits for a slow reader instead of filling memory.
        room = threading.Semaphore(2)
        stop = threading.Event()

        def hand_over(found: ScanBatch | None) -> None:
            while not room.acquire(timeout=HAND_OVER_SECONDS):
                if stop.is_set():
                    return
            # A loop that is closed has no reader any more.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(turns.put_nowait, found)

        def work() -> None:
            try:
                self._work(plan, stop, hand_over)
            finally:
                hand_over(None)

        future = loop.run_in_executor(self._threads, work)
        try:
            while (found := await turns.get()) is not None:
                room.release()
                yield found
            await future
        finally:
            stop.set()
            self.running -= 1

    def _work(
        self, plan: ScanPlan, stop: threading.Event, hand_over: Callable[[ScanBatch], None]
    ) -> None:
        decoder = Decoder(plan.topic, self._schemas, plan.query.decode)
        properties = {
            "log_level": 0,
            "fetch.wait.max.ms": 50,
            "queued.min.messages": 100_000,
            # The default of a second starves a scan that is faster than librdkafka's queue.
            "fetch.queue.backoff.ms": 10,
            **self._properties,
            # Never used: nothing subscribes or commits. librdkafka wants one all the same.
            "group.id": "kafkaesque-console",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
        try:
            with closing(Consumer(properties)) as consumer:
                _Scan(plan, decoder, consumer, stop, hand_over).run()
        except KafkaException as error:
            raise ScanFailed(str(error.args[0])) from None
