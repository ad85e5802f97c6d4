"""Fetch of data that is not in memory: a thread waits for the disk; the event loop does not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Container, Iterator
from typing import Any

import pytest
from tests.broker.server.handlers.test_fetch import fetch, request, rows
from tests.broker.server.local_broker import LocalBroker

from kafkaesque.broker.partitions.partition import Partition
from kafkaesque.broker.partitions.waiting import BytesAwaited
from kafkaesque.broker.storage.log import Log
from kafkaesque.broker.storage.open_files import FileRange, Place
from kafkaesque.model.errors import ErrorCode
from kafkaesque.model.ids import Offset, TimestampMs
from kafkaesque.records.codec import Record, encode_batch

pytestmark = pytest.mark.pure


class Disk:
    """From which a log has to be loaded in `loads` steps before it is in memory, and stays there unless
    it is `forgetful`."""

    def __init__(self) -> None:
        self.loads = 1
        self.forgetful = False
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.loaded: list[FileRange] = []
        self.threads: set[str] = set()

    def find(
        self, log: Log, offset: int, max_bytes: int, tried: Container[Place]
    ) -> FileRange | None:
        if not log.log_start_offset <= offset < log.log_end_offset:
            return None
        for step in range(self.loads):
            found = FileRange(log._chain.active.file, step, max_bytes)
            is_loaded = any(found.start == one.start for one in self.loaded)
            if found.start not in tried and (self.forgetful or not is_loaded):
                return found
        return None

    def load(self, wanted: FileRange) -> None:
        self.threads.add(threading.current_thread().name.partition("_")[0])
        self.entered.set()
        assert self.gate.wait(30)
        self.loaded.append(wanted)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk()
    monkeypatch.setattr(Log, "on_disk", lambda log, *wanted: disk.find(log, *wanted))
    monkeypatch.setattr(FileRange, "load", lambda wanted: disk.load(wanted))
    yield disk
    disk.gate.set()


@pytest.fixture
def topic(broker: LocalBroker) -> LocalBroker:
    """Topic a: batches [0, 1, 2] [3] in partition 0, one more in partition 1."""
    broker.create("a", 2)
    for times in ((1, 2, 3), (4,)):
        broker.append("a", *times)
    broker.append("a", 5, index=1)
    return broker


@pytest.mark.parametrize("loads", [1, 2, 5])
def test_records_on_disk_are_loaded_by_worker_threads_before_the_answer(
    topic: LocalBroker, disk: Disk, loads: int
) -> None:
    disk.loads = loads
    answer = fetch(topic, ("a", 0, 0), ("a", 1, 0), max_bytes=50 << 20)
    assert rows(answer) == [("a", 0, ErrorCode.NONE, 2), ("a", 1, ErrorCode.NONE, 1)]
    assert [row.high_watermark for row in answer.responses[0].partitions] == [4, 1]
    assert len(disk.loaded) == 2 * loads
    assert disk.threads == {"load"}


def test_loaded_ranges_are_read_even_if_they_are_not_in_memory_any_more(
    topic: LocalBroker, disk: Disk
) -> None:
    disk.forgetful = True
    for _ in range(2):
        answer = fetch(topic, ("a", 0, 0), ("a", 1, 0), max_bytes=50 << 20)
        assert rows(answer) == [("a", 0, ErrorCode.NONE, 2), ("a", 1, ErrorCode.NONE, 1)]
    assert len(disk.loaded) == 4


def test_nothing_is_read_after_a_range_that_has_to_be_loaded_first(
    topic: LocalBroker, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Log] = []
    plain_read = Log.read

    def noted(log: Log, *wanted: Any, **more: Any) -> Any:
        read.append(log)
        return plain_read(log, *wanted, **more)

    monkeypatch.setattr(Log, "read", noted)
    assert rows(fetch(topic, ("a", 0, 0), ("a", 1, 0), max_bytes=50 << 20))[1][3] == 1
    assert len(read) == 2


def test_answer_does_not_wait_for_the_disk_if_some_records_are_in_memory(
    topic: LocalBroker, disk: Disk
) -> None:
    log = topic.partition("a").log
    size_bytes = max(1 << 20, topic.partition("a").config.max_message_bytes)
    disk.loaded.append(FileRange(log._chain.active.file, 0, size_bytes))
    disk.loads = 2
    answer = fetch(topic, ("a", 0, 0), ("a", 1, 0))
    assert rows(answer) == [("a", 0, ErrorCode.NONE, 2), ("a", 1, ErrorCode.NONE, 0)]
    patient = fetch(topic, ("a", 0, 0), ("a", 1, 0), min_bytes=10**6, max_wait_ms=1)
    assert rows(patient) == rows(answer), "after the wait as without one"
    (_, left_out) = [row for entry in answer.responses for row in entry.partitions]
    assert left_out.high_watermark == 1
    assert rows(fetch(topic, ("a", 1, 0))) == [("a", 1, ErrorCode.NONE, 1)]


def test_no_more_is_loaded_than_an_answer_holds(topic: LocalBroker, disk: Disk) -> None:
    answer = fetch(topic, ("a", 0, 0), ("a", 1, 0), max_bytes=1000, partition_max_bytes=1000)
    assert rows(answer) == [("a", 0, ErrorCode.NONE, 2), ("a", 1, ErrorCode.NONE, 0)]
    largest_bytes = topic.partition("a").config.max_message_bytes
    assert [found.size_bytes for found in disk.loaded] == [largest_bytes], "the first comes whole"
    disk.loaded.clear()
    assert rows(fetch(topic, ("a", 0, 0), ("a", 1, 0), max_bytes=0)) == [
        ("a", 0, ErrorCode.NONE, 1),
        ("a", 1, ErrorCode.NONE, 0),
    ]
    assert [found.size_bytes for found in disk.loaded] == [largest_bytes]


def test_slow_disk_does_not_delay_other_requests(topic: LocalBroker, disk: Disk) -> None:
    async def story() -> None:
        disk.gate.clear()
        slow = asyncio.create_task(topic.answer(request(topic, ("a", 0, 0)), 12))
        await asyncio.to_thread(disk.entered.wait, 30)
        end = await topic.answer(request(topic, ("a", 0, 4)), 12)
        assert rows(end) == [("a", 0, ErrorCode.NONE, 0)]
        assert not slow.done()
        disk.gate.set()
        assert rows(await slow) == [("a", 0, ErrorCode.NONE, 2)]

    topic.run(story())


def test_damaged_partition_that_was_loaded_is_reported(topic: LocalBroker, disk: Disk) -> None:
    log = topic.partition("a").log
    log.files.pwrite(log._chain.active.file, b"\xff", 70)
    answer = fetch(topic, ("a", 0, 0), ("a", 1, 0), max_bytes=50 << 20)
    assert rows(answer) == [("a", 0, ErrorCode.CORRUPT_MESSAGE, 0), ("a", 1, ErrorCode.NONE, 1)]


def test_too_little_from_the_disk_waits_for_more(
    topic: LocalBroker, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = encode_batch([Record(Offset(0), TimestampMs(6), b"k", b"v")])
    watch, watched = Partition.watch, asyncio.Event()

    def noted(partition: Partition, watcher: BytesAwaited) -> None:
        watch(partition, watcher)
        watched.set()

    monkeypatch.setattr(Partition, "watch", noted)

    async def story() -> None:
        asked = request(topic, ("a", 0, 3), max_wait_ms=60_000, min_bytes=100)
        waiting = asyncio.create_task(topic.answer(asked, 12))
        await watched.wait()
        topic.partition("a").append_own(more)
        assert rows(await waiting) == [("a", 0, ErrorCode.NONE, 2)]

    topic.run(story())


def test_wait_for_too_little_ends_when_its_time_is_over(topic: LocalBroker, disk: Disk) -> None:
    answer = fetch(topic, ("a", 0, 3), max_wait_ms=1, min_bytes=10**6)
    assert rows(answer) == [("a", 0, ErrorCode.NONE, 1)]


def test_node_that_stops_waits_for_no_slow_disk(topic: LocalBroker, disk: Disk) -> None:
    async def story() -> None:
        disk.gate.clear()
        waiting = asyncio.create_task(topic.answer(request(topic, ("a", 0, 0)), 12))
        await asyncio.to_thread(disk.entered.wait, 30)
        topic.context.pages.close()
        waiting.cancel()

    topic.run(story())
    topic.stop()
    assert disk.loaded == []
