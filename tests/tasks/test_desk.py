from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.client.ports import CommitPoint, Received
from kafkaesque.events import tasks as words
from kafkaesque.model.ids import Offset, PartitionIndex, TimestampMs, TopicPartition
from kafkaesque.tasks.rules.desk import Desk, DeskLimits
from kafkaesque.tasks.rules.gaps import WINDOW_OFFSETS_MAX
from kafkaesque.tasks.rules.holdings import Item, Share

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


def test_a_held_call_stops_its_partition_only_when_a_commit_cannot_tell_and_is_given_up_then() -> (
    None
):
    desk = desk_of(record(0, "a"), limits=DeskLimits(held_max=10**6, read_max=10))
    held = take(desk)
    desk.hold(held, NOW_MS + 10**6)
    for offset in range(1, WINDOW_OFFSETS_MAX + 10):
        desk.admit(record(offset, "b"), NOW_MS)
        end(desk, take(desk))
    assert (desk.overstayed(), desk.crowded()) == ([], frozenset())
    for number in range(1_500):
        desk.admit(record(offset := offset + 1, f"held {number}"), NOW_MS)
        desk.hold(take(desk), NOW_MS + 10**6)
    assert desk.crowded() == {PLACE}
    assert desk.overstayed() == [held]
    end(desk, held)
    assert desk.points()[PLACE].offset == WINDOW_OFFSETS_MAX + 10


def test_held_calls_that_take_more_than_their_share_are_given_up_oldest_first() -> None:
    desk = desk_of(*(record(n, str(n)) for n in range(4)), limits=DeskLimits(held_max=3))
    items = [take(desk) for _ in range(4)]
    for item in items[:3]:
        desk.hold(item, NOW_MS + 1000)
    assert desk.overstayed() == []
    desk.hold(items[3], NOW_MS + 1000)
    assert desk.overstayed() == [items[0]]
    assert desk.overstayed() == []


def test_delayed_calls_that_fill_their_share_keep_no_queue_from_being_read() -> None:
    small = DeskLimits(held_bytes_max=4 * 200)
    delayed = [record(n, place=TIER, due_ms=NOW_MS + 3000) for n in range(5)]
    assert desk_of(*delayed, limits=small).crowded() == {TIER}


def test_a_key_that_is_busy_fills_its_share_and_other_keys_go_on() -> None:
    """However many calls wait behind one that is held: they stay in the log."""
    desk = desk_of(record(0, "slow"), limits=DeskLimits(held_max=100))
    slow = take(desk)
    desk.hold(slow, NOW_MS + 10**6)
    for offset in range(1, 20_000):
        desk.admit(record(offset, "slow"), NOW_MS)
    assert desk.crowded() == frozenset()
    assert desk.holdings.counts[Share.BEHIND] <= 100
    desk.admit(record(20_000, "other"), NOW_MS)
    assert take(desk).record.offset == 20_000


def test_heavy_calls_behind_a_busy_key_stay_in_the_log_too() -> None:
    desk = desk_of(
        *(record(n, "slow") for n in range(1_000)), limits=DeskLimits(held_bytes_max=40_000)
    )
    assert desk.crowded() == frozenset()
    assert desk.holdings.size_bytes[Share.BEHIND] < 10_000 + 100


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


class Model:
    """A worker on one partition: reads, runs, ends, moves to a successor, as it is told."""

    def __init__(self, keys: list[str | None], limits: DeskLimits) -> None:
        self.log = [record(n, key) for n, key in enumerate(keys)]
        self.limits = limits
        self.position = 0
        self.search: int | None = None
        self.running: list[Item] = []
        self.done: list[int] = []
        self.desk = Desk(limits)
        self.desk.assign({PLACE: None})
        self.point: CommitPoint | None = None

    def read(self) -> int:
        count = 0 if self.desk.crowded() else min(self.desk.room(), self.limits.read_max)
        for one in self.log[self.position : self.position + count]:
            self.desk.admit(one, NOW_MS)
            self.position += 1
        return self.look_back() + count

    def look_back(self) -> int:
        """As `LeftReader` does."""
        progress = self.desk.progress_of(PLACE)
        assert progress is not None
        wanted = self.desk.wanted()
        if self.search is None and wanted:
            self.search = wanted[PLACE]
            progress.seek()
        if self.search is None:
            return 0
        batch = self.log[self.search : self.search + self.limits.read_max]
        self.search += len(batch)
        found = sum(self.desk.take_back(one, NOW_MS) is not None for one in batch)
        if not progress.is_sought:
            self.search = None
        else:
            assert self.search < progress.next_offset, "what was left was not found"
        return found

    def begin(self) -> None:
        while len(self.running) < 5 and (item := self.desk.take()) is not None:
            assert item.record.key not in {one.record.key for one in self.running} - {None}
            self.running.append(item)

    def fail(self, number: int) -> None:
        """It is tried again later, and its key waits for it."""
        self.desk.hold(self.running.pop(number % len(self.running)), NOW_MS + 1000)

    def ripen(self) -> None:
        self.desk.ripen(NOW_MS + 1000)
        self.begin()

    def end(self, number: int) -> None:
        item = self.running.pop(number % len(self.running))
        end(self.desk, item)
        self.done.append(item.record.offset)

    def commit(self) -> None:
        points = self.desk.points()
        self.desk.committed(points)
        self.point = points.get(PLACE, self.point)

    def crash(self) -> None:
        """A successor goes on from what was committed."""
        self.commit()
        self.desk = Desk(self.limits)
        self.desk.assign({PLACE: self.point})
        self.position = 0 if self.point is None else int(self.point.offset)
        self.search, self.running = None, []

    def drain(self, *, but: str | None = None) -> None:
        """Until nothing goes on, except calls of one key, which never end."""
        stuck = None if but is None else but.encode()
        for _ in range(100 * len(self.log) + 100):
            self.read()
            if but is None:
                self.ripen()
            self.begin()
            ending = [
                n for n, one in enumerate(self.running) if but is None or one.record.key != stuck
            ]
            if ending:
                self.end(ending[0])
            elif self.position == len(self.log) and self.search is None and not self.desk.wanted():
                return
        raise AssertionError("it does not come to an end")


TINY = DeskLimits(held_max=4, read_max=3)
MOVES = st.lists(
    st.one_of(st.sampled_from(["read", "crash", "fail", "ripen"]), st.integers(0, 9)), max_size=60
)
KEYS = st.lists(st.sampled_from(["a", "a", "a", "b", "c", None]), max_size=60)


@settings(deadline=None, max_examples=200)
@given(keys=KEYS, moves=MOVES)
def test_whatever_happens_every_call_is_done_once_and_each_key_in_order(
    keys: list[str | None], moves: list[str | int]
) -> None:
    model = Model(keys, TINY)
    for move in moves:
        if move == "crash":
            model.crash()
        elif move == "read":
            model.read()
            model.begin()
        elif move == "ripen":
            model.ripen()
        elif move == "fail" and model.running:
            model.fail(0)
        elif isinstance(move, int) and model.running:
            model.end(move)
        shares = model.desk.holdings.counts
        assert all(shares[share] <= TINY.held_max + TINY.read_max for share in Share)
    model.drain()
    assert sorted(model.done) == list(range(len(keys)))
    for key in {key for key in keys if key is not None}:
        own = [n for n in model.done if keys[n] == key]
        assert own == sorted(own)
    assert model.desk.holdings.open == 0
    model.commit()
    assert not keys or model.point == CommitPoint(Offset(len(keys)), "g2")


@settings(deadline=None, max_examples=100)
@given(keys=KEYS)
def test_a_call_that_never_ends_keeps_no_call_of_another_key_from_its_end(
    keys: list[str | None],
) -> None:
    model = Model(keys, TINY)
    model.drain(but="a")
    assert sorted(model.done) == [n for n, key in enumerate(keys) if key != "a"]
    model.crash()
    model.drain()
    assert sorted(model.done) == list(range(len(keys)))
