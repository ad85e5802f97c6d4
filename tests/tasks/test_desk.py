from __future__ import annotations

import msgspec

from kafkaesque.client.ports import CommitPoint, Received
from kafkaesque.events import tasks as words
from kafkaesque.model.ids import Offset, PartitionIndex, TimestampMs, TopicPartition
from kafkaesque.tasks.desk import Desk, DeskLimits, Item
from kafkaesque.tasks.progress import WINDOW_OFFSETS_MAX

NOW_MS = 1_800_000_000_000
PLACE = TopicPartition("tasks.q", PartitionIndex(0))
TIER = TopicPartition("tasks.q.retry.5s", PartitionIndex(0))


def record(
    offset: int, key: str | None = None, place: TopicPartition = PLACE, due_ms: int | None = None
) -> Received:
    message = words.TaskMessage(f"c{offset}", "t", msgspec.Raw(b"{}"), TimestampMs(NOW_MS))
    headers = () if due_ms is None else ((words.DUE, str(due_ms).encode()),)
    data = words.encode_message(message)
    octets = None if key is None else key.encode()
    return Received(*place, Offset(offset), octets, data, headers, TimestampMs(NOW_MS))


def desk_of(*records: Received, limits: DeskLimits | None = None) -> Desk:
    desk = Desk(limits or DeskLimits())
    desk.assign({PLACE: None, TIER: None})
    for one in records:
        desk.admit(one, NOW_MS)
    return desk


def take(desk: Desk) -> Item:
    item = desk.take()
    assert item is not None
    return item


def end(desk: Desk, item: Item) -> None:
    desk.release(item)
    desk.finish(item)


def test_what_ends_out_of_order_is_committed_with_its_gaps() -> None:
    desk = desk_of(*(record(n) for n in range(4)))
    items = [take(desk) for _ in range(4)]
    for item in (items[3], items[1]):
        end(desk, item)
    points = desk.points()
    assert points[PLACE].offset == 0
    assert points[PLACE].metadata != "g1"
    desk.committed(points)
    assert desk.points() == {}


def test_a_record_of_a_delayed_topic_waits_for_its_time_and_holds_up_nobody() -> None:
    desk = desk_of(
        record(0, place=TIER, due_ms=NOW_MS + 3000), record(1, place=TIER, due_ms=NOW_MS)
    )
    assert take(desk).record.offset == 1
    assert desk.take() is None
    assert desk.next_due_ms == NOW_MS + 3000
    desk.ripen(NOW_MS + 3000)
    assert take(desk).record.offset == 0


def test_a_due_time_on_a_queue_itself_is_ignored() -> None:
    """What the timers fire carries the time at which it was due."""
    assert take(desk_of(record(0, due_ms=NOW_MS + 10**9))).record.offset == 0


def test_a_held_call_keeps_its_key_and_comes_before_the_others() -> None:
    desk = desk_of(record(0, "a"), record(1, "a"), record(2, "b"))
    first = take(desk)
    desk.hold(first, NOW_MS + 1000)
    assert take(desk).record.offset == 2
    assert desk.take() is None
    desk.ripen(NOW_MS + 1000)
    assert take(desk) is first
    end(desk, first)
    assert take(desk).record.offset == 1


def test_partitions_are_not_read_while_too_much_of_them_is_held() -> None:
    desk = desk_of(*(record(n) for n in range(5)), limits=DeskLimits(held_max=5, delayed_max=2))
    assert desk.crowded() == {PLACE}
    end(desk, take(desk))
    assert desk.crowded() == frozenset()
    for n in range(2):
        desk.admit(record(n, place=TIER, due_ms=NOW_MS + 4000), NOW_MS)
    assert desk.crowded() == {TIER}


def test_a_held_call_that_fills_its_partitions_window_is_given_up() -> None:
    desk = desk_of(record(0, "a"), limits=DeskLimits(held_max=10**6, read_max=10))
    held = take(desk)
    desk.hold(held, NOW_MS + 10**6)
    for offset in range(1, WINDOW_OFFSETS_MAX):
        desk.admit(record(offset, "b"), NOW_MS)
        if desk.overstayed():
            break
        end(desk, take(desk))
    assert offset > WINDOW_OFFSETS_MAX - 30
    assert desk.overstayed() == []
    assert desk.next_due_ms is None
    end(desk, held)
    assert desk.points()[PLACE].offset == offset


def test_a_partition_that_went_away_takes_what_has_not_begun_with_it() -> None:
    desk = desk_of(record(0, "a"), record(1, "a"), record(2, "b"),
                   record(0, "c", TIER, NOW_MS + 9), record(1, "d", TIER, NOW_MS))  # fmt: skip
    running = take(desk)
    desk.withdraw([PLACE])
    desk.finish(running)
    assert desk.points()[PLACE].offset == 1
    desk.forget([PLACE])
    assert take(desk).record.topic == TIER.topic
    assert desk.take() is None
    assert PLACE not in desk.points()


def test_an_end_from_before_the_partition_came_back_counts_for_nothing() -> None:
    desk = desk_of(record(7))
    stale = take(desk)
    desk.forget([PLACE])
    desk.assign({PLACE: CommitPoint(Offset(7))})
    desk.admit(record(7), NOW_MS)
    end(desk, stale)
    assert not desk.is_ours(stale)
    assert desk.points()[PLACE].offset == 7
