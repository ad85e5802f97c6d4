"""A lag that is only markers of transactions and what they took back is no lag."""

from __future__ import annotations

import pytest

from kafkaesque.console.cluster.assembling import judge_group, tails_of
from kafkaesque.console.rules.lag import WINDOW, OffsetClock, Status
from kafkaesque.console.rules.tails import (
    ASKED_AT_ONCE_MAX,
    TAIL_OFFSETS_MAX,
    Aborted,
    Tail,
    Tails,
    silent_until,
)
from kafkaesque.console.rules.view import ClusterView, GroupView, PartitionView, TopicView
from kafkaesque.records.batch import CONTROL_BIT, HEADER, MAGIC, TRANSACTIONAL_BIT

PLACE = ("orders", 0)


def batch(start: int, count: int = 1, *, bits: int = 0, producer: int = -1, kept: int = 1) -> bytes:
    """Only the header of a batch: nothing else is looked at."""
    length = HEADER.size - 12
    return HEADER.pack(start, length, 0, MAGIC, 0, bits, count - 1, 0, 0, producer, 0, 0, kept)


def record(start: int, count: int = 1, producer: int = -1) -> bytes:
    return batch(start, count, bits=TRANSACTIONAL_BIT if producer >= 0 else 0, producer=producer)


def marker(at: int, producer: int) -> bytes:
    return batch(at, bits=CONTROL_BIT | TRANSACTIONAL_BIT, producer=producer)


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
        (record(10, 3, 7) + marker(13, 7), [Aborted(7, 10)], 14),
        (record(10, 3, 7) + marker(13, 7) + record(14, 1, 7), [Aborted(7, 10)], 14),
        (record(10, 3, 7) + record(13, 1, 8), [Aborted(7, 10)], 13),
        (record(10, 1, 7), [Aborted(8, 10)], 10),
        (batch(10, 4, kept=0) + marker(14, 1), [], 15),
        (marker(10, 1) + record(11)[:40], [], 11),
    ],
    ids=[
        "nothing", "a marker", "two markers", "a batch that was read", "a record",
        "the middle of a batch", "a record behind a marker", "an aborted transaction",
        "the next of the same producer", "another's transaction", "not the aborted one",
        "compacted away", "a batch that is cut",
    ],
)  # fmt: skip
def test_reader_gets_nothing_up_to_here(data: bytes, aborted: list[Aborted], reached: int) -> None:
    assert silent_until(data, aborted, 10) == reached


def test_tail_of_a_group_with_members_is_looked_at_when_it_stands_still() -> None:
    tails, first, second = Tails(), Tail(PLACE, 9, 10), Tail(PLACE, 10, 11)
    assert tails.choose([first], []) == []
    assert tails.choose([second], []) == []
    assert tails.choose([second], []) == [second]
    tails.learn(second, 11)
    assert tails.choose([second], []) == []
    assert tails.silent(second) == 1
    assert tails.choose([first], []) == []
    assert tails.silent(second) == 0, "it is forgotten with its tail"


def test_tail_of_a_group_without_members_is_looked_at_once_and_a_long_one_never() -> None:
    tails, short, long = Tails(), Tail(PLACE, 9, 10), Tail(PLACE, 0, TAIL_OFFSETS_MAX + 1)
    assert tails.choose([], [short, long]) == [short]
    tails.learn(short, 9)
    assert tails.choose([], [short, long]) == []
    assert tails.silent(short) == 0
    many = [Tail(("orders", index), 0, 1) for index in range(2 * ASKED_AT_ONCE_MAX)]
    assert len(tails.choose([], many)) == ASKED_AT_ONCE_MAX


@pytest.mark.parametrize(
    ("members", "reached", "status", "lag"),
    [
        (1, 10, Status.OK, 0),
        (0, 10, Status.IDLE, 0),
        (1, 9, Status.STALLED, 1),
        (0, 9, Status.STOPPED, 1),
    ],
)
def test_group_with_a_marker_before_it_keeps_up_and_one_with_a_record_does_not(
    members: int, reached: int, status: Status, lag: int
) -> None:
    group = GroupView("g", "Stable", "classic", "consumer", 0, members)
    partition = PartitionView(index=0, leader=1, epoch=1, replicas=(1,), isr=(1,), offline=())
    partition.end = 10
    view = ClusterView()
    view.topics = {"orders": TopicView("orders", "id", False, [partition])}
    view.groups = {"g": group}
    committed = {PLACE: 9}
    tails, clock = Tails(), OffsetClock()
    for look in range(WINDOW + 2):
        for tail in tails.choose(*tails_of(view, {"g": committed})):
            tails.learn(tail, reached)
        clock.observe(3.0 * look, 10)
        judge_group(group, committed, view.topics, {PLACE: clock}, tails, 3.0 * look)
    assert group.status is status
    assert group.lag == lag
    assert (group.offsets[0].behind or (1.0,))[0] == pytest.approx(0.0 if not lag else 33.0)
