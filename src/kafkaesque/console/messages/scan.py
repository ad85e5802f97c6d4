"""Scans ranges of a topic in a worker thread and passes matching records to the event loop.

librdkafka's `consume` returns thousands of messages per call. The thread gives way only when the
interpreter switches threads, so pages stay responsive while a million records are searched.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import dataclasses
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
from kafkaesque.console.messages.ranges import OffsetRange, windows_back
from kafkaesque.console.messages.record import ReadRecord

SCANS_AT_ONCE_MAX: Final = 8
CONSUME_MESSAGES: Final = 5000
CONSUME_SECONDS: Final = 0.25
PROGRESS_SECONDS: Final = 0.2
DELIVER_SECONDS: Final = 0.5
SCAN_SECONDS_MAX: Final = 300.0
FOLLOW_SECONDS_MAX: Final = 3600.0
SILENCE_SECONDS_MAX: Final = 10.0
"""A scan fails if the brokers send no records for this long though there are some."""


class ScanFailed(Exception):
    """The records cannot be read; the message gives the reason."""


@dataclass(slots=True)
class ScanProgress:
    """Progress of a scan. `total` is the size of its ranges; `note` says why it ended."""

    scanned: int = 0
    matched: int = 0
    total: int = 0
    seconds: float = 0.0
    is_done: bool = False
    note: str = ""


@dataclass(slots=True)
class ScanBatch:
    """Some matching records and the progress so far."""

    records: list[ReadRecord]
    progress: ScanProgress


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """The topic, the offset ranges of its partitions, and the query to apply."""

    topic: str
    ranges: Mapping[int, OffsetRange]
    query: MessageQuery
    follow: bool = False

    @property
    def is_newest_first(self) -> bool:
        return self.query.start.kind == "newest" and not self.follow


@dataclass(slots=True)
class _Scan:
    """The state of one scan; runs in a worker thread."""

    plan: ScanPlan
    decoder: Decoder
    consumer: Consumer
    stop: threading.Event
    deliver: Callable[[ScanBatch], None]
    progress: ScanProgress = field(default_factory=ScanProgress)
    began: float = field(default_factory=time.monotonic)
    reported: float = 0.0

    def run(self) -> None:
        plan = self.plan
        self.progress.total = sum(max(0, end - start) for start, end in plan.ranges.values())
        if plan.follow:
            self._follow()
        elif plan.is_newest_first:
            self._newest_first()
        else:
            self._oldest_first()
        if not self.progress.note:
            self.progress.note = "stopped" if self.stop.is_set() else "all read"
        self.progress.is_done = True
        self._report([])

    def _newest_first(self) -> None:
        """Read window after window from the end; sort the records of each window, newest first."""
        limit = self.plan.query.limit
        size = limit if self._matches_all else max(limit, CONSUME_MESSAGES)
        for window in windows_back(self.plan.ranges, size):
            found = [record for batch in self._batches(window) for record in batch]
            found.sort(key=lambda record: (record.timestamp_ms, record.offset), reverse=True)
            if self._take(found):
                return

    def _oldest_first(self) -> None:
        for batch in self._batches(self.plan.ranges):
            batch.sort(key=lambda record: (record.timestamp_ms, record.offset))
            if self._take(batch):
                return

    def _take(self, found: list[ReadRecord]) -> bool:
        """Pass records on; True if the limit of matches or of scanned records is reached."""
        room = self.plan.query.limit - self.progress.matched
        kept = found[:room]
        self.progress.matched += len(kept)
        if self.progress.matched >= self.plan.query.limit:
            self.progress.note = "limit reached"
        elif self.progress.scanned >= self.plan.query.scan_max:
            self.progress.note = "scan limit reached"
        if kept:
            self._report(kept)
        return bool(self.progress.note) or self.stop.is_set()

    def _follow(self) -> None:
        starts = {index: end for index, (_, end) in self.plan.ranges.items()}
        self._assign(starts)
        while not self.stop.is_set():
            if time.monotonic() - self.began > FOLLOW_SECONDS_MAX:
                self.progress.note = "stopped after an hour; follow again to continue"
                return
            messages = self.consumer.consume(CONSUME_MESSAGES, CONSUME_SECONDS)
            found = self._matching(self._within_ranges(messages, {}, set()))
            self.progress.matched += len(found)
            # Only the newest records of a burst are sent; otherwise the page would lag further and further.
            self._report(found[-self.plan.query.limit :])

    @property
    def _matches_all(self) -> bool:
        return self.plan.query.match is None and self.plan.query.key is None

    def _batches(self, ranges: Mapping[int, OffsetRange]) -> Iterator[list[ReadRecord]]:
        """The matching records of `ranges`, in batches as they arrive."""
        ends = {index: end for index, (start, end) in ranges.items() if end > start}
        if not ends:
            return
        self._assign({index: ranges[index][0] for index in ends})
        unfinished = set(ends)
        last_received = time.monotonic()
        while unfinished and not self.stop.is_set():
            messages = self.consumer.consume(CONSUME_MESSAGES, CONSUME_SECONDS)
            now = time.monotonic()
            if messages:
                last_received = now
            elif now - last_received > SILENCE_SECONDS_MAX:
                raise ScanFailed(f"the brokers sent no records for {SILENCE_SECONDS_MAX:.0f} s")
            found = self._matching(self._within_ranges(messages, ends, unfinished))
            if found:
                yield found
            if now - self.reported > PROGRESS_SECONDS:
                self._report([])
            if self.progress.scanned >= self.plan.query.scan_max:
                return
            if now - self.began > SCAN_SECONDS_MAX:
                self.progress.note = "time limit reached"
                return

    def _assign(self, starts: Mapping[int, int]) -> None:
        self.consumer.assign(
            [TopicPartition(self.plan.topic, index, at) for index, at in starts.items()]
        )

    def _within_ranges(
        self, messages: Iterable[Any], ends: Mapping[int, int], unfinished: set[int]
    ) -> Iterator[Any]:
        """Messages before the end of their range; removes finished partitions from `unfinished`."""
        for message in messages:
            error = message.error()
            if error is not None:
                if error.code() != KafkaError._PARTITION_EOF:
                    raise ScanFailed(error.str())
                unfinished.discard(message.partition())
                continue
            end = ends.get(message.partition())
            if end is not None:
                offset = message.offset()
                if offset >= end - 1:
                    unfinished.discard(message.partition())
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

    def _report(self, records: list[ReadRecord]) -> None:
        self.reported = time.monotonic()
        progress = self.progress
        progress.seconds = self.reported - self.began
        self.deliver(ScanBatch(records, dataclasses.replace(progress)))


class Scanner:
    """Runs scans, each in its own thread, at most `SCANS_AT_ONCE_MAX` at a time."""

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
        """Run a scan and yield its batches. It stops when the caller stops iterating. Raises ScanFailed."""
        if self.running >= SCANS_AT_ONCE_MAX:
            raise ScanFailed(f"{self.running} searches are running; try again when one has ended")
        self.running += 1
        loop = asyncio.get_running_loop()
        batches: asyncio.Queue[ScanBatch | None] = asyncio.Queue()
        # At most two batches ahead: the thread waits for a slow reader instead of filling memory.
        room = threading.Semaphore(2)
        stop = threading.Event()

        def deliver(found: ScanBatch | None) -> None:
            while not room.acquire(timeout=DELIVER_SECONDS):
                if stop.is_set():
                    return
            # A closed event loop has no reader left.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(batches.put_nowait, found)

        def work() -> None:
            try:
                self._work(plan, stop, deliver)
            finally:
                deliver(None)

        future = loop.run_in_executor(self._threads, work)
        try:
            while (found := await batches.get()) is not None:
                room.release()
                yield found
            await future
        finally:
            stop.set()
            self.running -= 1

    def _work(
        self, plan: ScanPlan, stop: threading.Event, deliver: Callable[[ScanBatch], None]
    ) -> None:
        decoder = Decoder(plan.topic, self._schemas, plan.query.decode)
        properties = {
            "log_level": 0,
            "fetch.wait.max.ms": 50,
            "queued.min.messages": 100_000,
            # With the default of one second, a scan that outruns librdkafka's queue would starve.
            "fetch.queue.backoff.ms": 10,
            **self._properties,
            # Required by librdkafka but never used: the consumer does not subscribe or commit.
            "group.id": "kafkaesque-console",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
        try:
            with closing(Consumer(properties)) as consumer:
                _Scan(plan, decoder, consumer, stop, deliver).run()
        except KafkaException as error:
            raise ScanFailed(str(error.args[0])) from None
