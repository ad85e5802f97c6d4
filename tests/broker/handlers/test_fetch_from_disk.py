"""Fetch of what is not in memory: a thread waits for the disk, and nobody else does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from broker.local_broker import LocalBroker
from kafkaesque.model.errors import ErrorCode
from kafkaesque.model.ids import Offset, TimestampMs
from kafkaesque.records.codec import Record, encode_batch
from kafkaesque.storage.log import Log
from kafkaesque.storage.open_files import REAL_CALLS, SystemCalls

from .test_fetch import fetch, request, rows


class SlowDisk:
    """Reads of any log wait until `gate` is set; remembers which threads waited."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.waited: list[bool] = []
        """For each read, whether it held up the event loop."""

    def pread(self, fd: int, size_bytes: int, position: int) -> bytes:
        self.waited.append(threading.current_thread() is threading.main_thread())
        if not self.waited[-1]:
            self.entered.set()
            assert self.gate.wait(30)
        return SystemCalls.pread(fd, size_bytes, position)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowDisk]:
    """From which all is to be read that is asked for the first time."""
    slow, loaded = SlowDisk(), set[tuple[int, int]]()

    def would_wait(log: Log, offset: int, max_bytes: int) -> bool:
        is_known = (id(log), offset) in loaded
        loaded.add((id(log), offset))
        return not is_known and log.log_start_offset <= offset < log.log_end_offset

    monkeypatch.setattr(Log, "would_wait", would_wait)
    monkeypatch.setattr(REAL_CALLS, "pread", slow.pread, raising=False)
    yield slow
    slow.gate.set()


@pytest.fixture
def topic(broker: LocalBroker) -> LocalBroker:
    """Topic a: batches [0, 1, 2] [3] in partition 0, one more in partition 1."""
    broker.create("a", 2)
    for times in ((1, 2, 3), (4,)):
        broker.append("a", *times)
    broker.append("a", 5, index=1)
    return broker


def test_what_is_on_the_disk_is_loaded_by_a_thread_and_then_answered(
    topic: LocalBroker, disk: SlowDisk
) -> None:
    answer = fetch(topic, ("a", 0, 0), ("a", 1, 0))
    assert rows(answer) == [("a", 0, 0, 2), ("a", 1, 0, 1)]
    assert disk.waited == [False, False, True, True], "loaded, and then read from memory"
    disk.waited.clear()
    assert rows(fetch(topic, ("a", 0, 0))) == [("a", 0, 0, 2)]
    assert disk.waited == [True]


def test_slow_disk_holds_up_nobody_else(topic: LocalBroker, disk: SlowDisk) -> None:
    async def story() -> None:
        disk.gate.clear()
        slow = asyncio.create_task(topic.answer(request(topic, ("a", 0, 0)), 12))
        await asyncio.to_thread(disk.entered.wait, 30)
        end = await topic.answer(request(topic, ("a", 0, 4)), 12)
        assert rows(end) == [("a", 0, 0, 0)]
        assert not slow.done()
        disk.gate.set()
        assert rows(await slow) == [("a", 0, 0, 2)]

    topic.run(story())


def test_loaded_partition_that_is_damaged_is_told_so(topic: LocalBroker, disk: SlowDisk) -> None:
    log = topic.partition("a").log
    segment = log._chain.active
    log.files.pwrite(segment.file, b"\xff", 70)
    answer = fetch(topic, ("a", 0, 0), ("a", 1, 0))
    assert rows(answer) == [("a", 0, ErrorCode.CORRUPT_MESSAGE, 0), ("a", 1, 0, 1)]


def test_too_little_from_the_disk_waits_for_more(topic: LocalBroker, disk: SlowDisk) -> None:
    async def story() -> None:
        asked = request(topic, ("a", 0, 3), max_wait_ms=60_000, min_bytes=100)
        waiting = asyncio.create_task(topic.answer(asked, 12))
        while not topic.partition("a")._watchers:
            await asyncio.sleep(0)
        topic.partition("a").append_own(
            encode_batch([Record(Offset(0), TimestampMs(6), b"k", b"v")])
        )
        assert rows(await waiting) == [("a", 0, 0, 2)]

    topic.run(story())


def test_wait_for_too_little_ends_when_its_time_is_over(topic: LocalBroker, disk: SlowDisk) -> None:
    answer = fetch(topic, ("a", 0, 3), max_wait_ms=1, min_bytes=10**6)
    assert rows(answer) == [("a", 0, 0, 1)]
