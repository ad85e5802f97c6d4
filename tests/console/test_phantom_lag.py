"""Lag that consists only of transaction markers and aborted records does not count."""

from __future__ import annotations

import pytest

from kafkaesque.console.rules.lag import WINDOW, GroupStatus, OffsetClock
from kafkaesque.console.rules.phantom_lag import (
    RANGE_OFFSETS_MAX,
    RANGES_CHECKED_MAX,
    PhantomLag,
    UnreadRange,
    next_readable_offset,
)
from kafkaesque.console.rules.view import ConsoleClusterView, GroupView, PartitionView, TopicView
from kafkaesque.console.rules.view_builder import evaluate_group, unread_ranges
from kafkaesque.records.layout import CONTROL_BIT, HEADER, MAGIC, TRANSACTIONAL_BIT
from kafkaesque.wire.messages.fetch import AbortedTransaction

PARTITION = ("orders", 0)


def batch(start: int, count: int = 1, *, bits: int = 0, producer: int = -1, kept: int = 1) -> bytes:
    """Only the header of a batch; nothing else is read."""
    length = HEADER.size - 12
    return HEADER.pack(start, length, 0, MAGIC, 0, bits, count - 1, 0, 0, producer, 0, 0, kept)


def record(start: int, count: int = 1, producer: int = -1) -> bytes:
    return batch(start, count, bits=TRANSACTIONAL_BIT if producer >= 0 else 0, producer=producer)


def marker(at: int, producer: int) -> bytes:
    return batch(at, bits=CONTROL_BIT | TRANSACTIONAL_BIT, producer=producer)


def aborted_by(producer: int) -> AbortedTransaction:
    return AbortedTransaction(producer_id=producer, first_offset=10)


@pytest.mark.parametrize(
    ("data", "aborted", "reached"),
    [
        (b"", [], 10),
        (marker(10, 1), [], 11),
        (marker(10, 1) + marker(11, 2), [], 12),
        (record(8, 2, 1) + marker(10, 1), [], 11),
        (record(10), [], 10),
        (record(8, 5), [], 10),
        (marker(10, 1) + record(11, 3), [], 11),
        (record(10, 3, 7) + marker(13, 7), [aborted_by(7)], 14),
        (record(10, 3, 7) + marker(13, 7) + record(14, 1, 7), [aborted_by(7)], 14),
        (record(10, 3, 7) + record(13, 1, 8), [aborted_by(7)], 13),
        (record(10, 1, 7), [aborted_by(8)], 10),
        (batch(10, 4, kept=0) + marker(14, 1), [], 15),
        (marker(10, 1) + record(11)[:40], [], 11),
    ],
    ids=[
        "nothing", "a marker", "two markers", "a batch that was read", "a record",
        "the middle of a batch", "a record after a marker", "an aborted transaction",
        "the next of the same producer", "another's transaction", "not the aborted one",
        "compacted away", "a batch that is cut",
    ],
)  # fmt: skip
def test_first_offset_that_a_read_committed_consumer_gets(
    data: bytes, aborted: list[AbortedTransaction], reached: int
) -> None:
    assert next_readable_offset(data, aborted, 10) == reached


def test_range_of_a_group_with_members_is_checked_once_the_group_stops_moving() -> None:
    phantom, first, second = (
        PhantomLag(),
        UnreadRange(PARTITION, 9, 10),
        UnreadRange(PARTITION, 10, 11),
    )
    assert phantom.choose([first], []) == []
    assert phantom.choose([second], []) == []
    assert phantom.choose([second], []) == [second]
    phantom.record(second, 11)
    assert phantom.choose([second], []) == []
    assert phantom.count(second) == 1
    assert phantom.choose([first], []) == []
    assert phantom.count(second) == 0, "the result is dropped with its range"


def test_range_of_a_group_without_members_is_checked_once_and_a_long_one_never() -> None:
    phantom, short, long = (
        PhantomLag(),
        UnreadRange(PARTITION, 9, 10),
        UnreadRange(PARTITION, 0, RANGE_OFFSETS_MAX + 1),
    )
    assert phantom.choose([], [short, long]) == [short]
    phantom.record(short, 9)
    assert phantom.choose([], [short, long]) == []
    assert phantom.count(short) == 0
    many = [UnreadRange(("orders", index), 0, 1) for index in range(2 * RANGES_CHECKED_MAX)]
    assert len(phantom.choose([], many)) == RANGES_CHECKED_MAX


@pytest.mark.parametrize(
    ("members", "reached", "status", "lag"),
    [
        (1, 10, GroupStatus.OK, 0),
        (0, 10, GroupStatus.IDLE, 0),
        (1, 9, GroupStatus.STALLED, 1),
        (0, 9, GroupStatus.STOPPED, 1),
    ],
)
def test_group_that_only_a_marker_separates_from_the_end_has_no_lag(
    members: int, reached: int, status: GroupStatus, lag: int
) -> None:
    group = GroupView("g", "Stable", "classic", "consumer", 0, members)
    partition = PartitionView(index=0, leader=1, epoch=1, replicas=(1,), isr=(1,), offline=())
    partition.end = 10
    view = ConsoleClusterView()
    view.topics = {"orders": TopicView("orders", "id", False, [partition])}
    view.groups = {"g": group}
    committed = {PARTITION: 9}
    phantom, clock = PhantomLag(), OffsetClock()
    for look in range(WINDOW + 2):
        for unread in phantom.choose(*unread_ranges(view, {"g": committed})):
            phantom.record(unread, reached)
        clock.observe(3.0 * look, 10)
        evaluate_group(group, committed, view.topics, {PARTITION: clock}, phantom, 3.0 * look)
    assert group.status is status
    assert group.lag == lag
    assert (group.offsets[0].time_lag or (1.0,))[0] == pytest.approx(0.0 if not lag else 33.0)
