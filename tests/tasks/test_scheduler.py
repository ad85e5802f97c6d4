from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.client.ports import CommitPoint, Received
from kafkaesque.events import tasks as protocol
from kafkaesque.model.ids import Offset, PartitionIndex, TimestampMs, TopicPartition
from kafkaesque.tasks.rules.in_flight import InFlightRecord, MemoryShare
from kafkaesque.tasks.rules.offset_metadata import WINDOW_OFFSETS_MAX
from kafkaesque.tasks.rules.scheduler import Scheduler, SchedulerLimits

NOW_MS = 1_800_000_000_000
PLACE = TopicPartition("tasks.q", PartitionIndex(0))
TIER = TopicPartition("tasks.q.retry.5s", PartitionIndex(0))


def record(
    offset: int, key: str | None = None, place: TopicPartition = PLACE, due_ms: int | None = None
) -> Received:
    message = protocol.TaskMessage(f"c{offset}", "t", msgspec.Raw(b"{}"), TimestampMs(NOW_MS))
    headers = () if due_ms is None else ((protocol.DUE, str(due_ms).encode()),)
    data = protocol.encode_message(message)
    octets = None if key is None else key.encode()
    return Received(*place, Offset(offset), octets, data, headers, TimestampMs(NOW_MS))


def scheduler_of(*records: Received, limits: SchedulerLimits | None = None) -> Scheduler:
    scheduler = Scheduler(limits or SchedulerLimits())
    scheduler.assign({PLACE: None, TIER: None})
    for one in records:
        scheduler.admit(one, NOW_MS)
    return scheduler


def take(scheduler: Scheduler) -> InFlightRecord:
    item = scheduler.take()
    assert item is not None
    return item


def end(scheduler: Scheduler, item: InFlightRecord) -> None:
    scheduler.release(item)
    scheduler.finish(item)


def test_a_commit_lists_the_open_offsets_when_calls_end_out_of_order() -> None:
    scheduler = scheduler_of(*(record(n) for n in range(4)))
    items = [take(scheduler) for _ in range(4)]
    for item in (items[3], items[1]):
        end(scheduler, item)
    points = scheduler.commit_points()
    assert points[PLACE].offset == 0
    assert points[PLACE].metadata != "g1"
    scheduler.mark_committed(points)
    assert scheduler.commit_points() == {}


def test_a_record_of_a_retry_topic_waits_for_its_time_and_blocks_no_other() -> None:
    scheduler = scheduler_of(
        record(0, place=TIER, due_ms=NOW_MS + 3000), record(1, place=TIER, due_ms=NOW_MS)
    )
    assert take(scheduler).record.offset == 1
    assert scheduler.take() is None
    assert scheduler.next_due_ms == NOW_MS + 3000
    scheduler.promote_due(NOW_MS + 3000)
    assert take(scheduler).record.offset == 0


def test_the_due_time_of_a_record_in_the_queue_itself_is_ignored() -> None:
    """A call that a timer fired carries its due time."""
    assert take(scheduler_of(record(0, due_ms=NOW_MS + 10**9))).record.offset == 0


def test_a_call_in_backoff_keeps_its_key_busy_and_runs_before_the_others() -> None:
    scheduler = scheduler_of(record(0, "a"), record(1, "a"), record(2, "b"))
    first = take(scheduler)
    scheduler.back_off(first, NOW_MS + 1000)
    assert take(scheduler).record.offset == 2
    assert scheduler.take() is None
    scheduler.promote_due(NOW_MS + 1000)
    assert take(scheduler) is first
    end(scheduler, first)
    assert take(scheduler).record.offset == 1


def test_a_partition_is_paused_while_too_many_of_its_records_are_held() -> None:
    scheduler = scheduler_of(
        *(record(n) for n in range(5)), limits=SchedulerLimits(held_max=5, delayed_max=2)
    )
    assert scheduler.partitions_to_pause() == {PLACE}
    end(scheduler, take(scheduler))
    assert scheduler.partitions_to_pause() == frozenset()
    for n in range(2):
        scheduler.admit(record(n, place=TIER, due_ms=NOW_MS + 4000), NOW_MS)
    assert scheduler.partitions_to_pause() == {TIER}


def test_a_backoff_is_evicted_only_when_a_commit_has_no_room_left() -> None:
    scheduler = scheduler_of(record(0, "a"), limits=SchedulerLimits(held_max=10**6, read_max=10))
    first = take(scheduler)
    scheduler.back_off(first, NOW_MS + 10**6)
    for offset in range(1, WINDOW_OFFSETS_MAX + 10):
        scheduler.admit(record(offset, "b"), NOW_MS)
        end(scheduler, take(scheduler))
    assert (scheduler.evict_backoffs(), scheduler.partitions_to_pause()) == ([], frozenset())
    for number in range(1_500):
        scheduler.admit(record(offset := offset + 1, f"held {number}"), NOW_MS)
        scheduler.back_off(take(scheduler), NOW_MS + 10**6)
    assert scheduler.partitions_to_pause() == {PLACE}
    assert scheduler.evict_backoffs() == [first]
    end(scheduler, first)
    assert scheduler.commit_points()[PLACE].offset == WINDOW_OFFSETS_MAX + 10


def test_backoffs_beyond_their_memory_share_are_evicted_oldest_first() -> None:
    scheduler = scheduler_of(
        *(record(n, str(n)) for n in range(4)), limits=SchedulerLimits(held_max=3)
    )
    items = [take(scheduler) for _ in range(4)]
    for item in items[:3]:
        scheduler.back_off(item, NOW_MS + 1000)
    assert scheduler.evict_backoffs() == []
    scheduler.back_off(items[3], NOW_MS + 1000)
    assert scheduler.evict_backoffs() == [items[0]]
    assert scheduler.evict_backoffs() == []


def test_delayed_calls_that_fill_their_share_pause_no_queue() -> None:
    small = SchedulerLimits(held_bytes_max=4 * 200)
    delayed = [record(n, place=TIER, due_ms=NOW_MS + 3000) for n in range(5)]
    assert scheduler_of(*delayed, limits=small).partitions_to_pause() == {TIER}


def test_a_busy_key_fills_its_share_and_other_keys_continue() -> None:
    """However many calls are blocked by one in backoff: they stay in the log."""
    scheduler = scheduler_of(record(0, "slow"), limits=SchedulerLimits(held_max=100))
    slow = take(scheduler)
    scheduler.back_off(slow, NOW_MS + 10**6)
    for offset in range(1, 20_000):
        scheduler.admit(record(offset, "slow"), NOW_MS)
    assert scheduler.partitions_to_pause() == frozenset()
    assert scheduler.in_flight.counts[MemoryShare.BLOCKED] <= 100
    scheduler.admit(record(20_000, "other"), NOW_MS)
    assert take(scheduler).record.offset == 20_000


def test_large_calls_of_a_busy_key_are_deferred_too() -> None:
    scheduler = scheduler_of(
        *(record(n, "slow") for n in range(1_000)), limits=SchedulerLimits(held_bytes_max=40_000)
    )
    assert scheduler.partitions_to_pause() == frozenset()
    assert scheduler.in_flight.size_bytes[MemoryShare.BLOCKED] < 10_000 + 100


def test_a_revoked_partition_drops_its_calls_that_have_not_started() -> None:
    scheduler = scheduler_of(record(0, "a"), record(1, "a"), record(2, "b"),
                   record(0, "c", TIER, NOW_MS + 9), record(1, "d", TIER, NOW_MS))  # fmt: skip
    running = take(scheduler)
    scheduler.withdraw([PLACE])
    scheduler.finish(running)
    assert scheduler.commit_points()[PLACE].offset == 1
    scheduler.forget([PLACE])
    assert take(scheduler).record.topic == TIER.topic
    assert scheduler.take() is None
    assert PLACE not in scheduler.commit_points()


def test_the_end_of_a_call_from_an_earlier_assignment_does_not_count() -> None:
    scheduler = scheduler_of(record(7))
    stale = take(scheduler)
    scheduler.forget([PLACE])
    scheduler.assign({PLACE: CommitPoint(Offset(7))})
    scheduler.admit(record(7), NOW_MS)
    end(scheduler, stale)
    assert not scheduler.is_current(stale)
    assert scheduler.commit_points()[PLACE].offset == 7


class Model:
    """A worker on one partition that reads, runs, ends and crashes on command."""

    def __init__(self, keys: list[str | None], limits: SchedulerLimits) -> None:
        self.log = [record(n, key) for n, key in enumerate(keys)]
        self.limits = limits
        self.position = 0
        self.reread_at: int | None = None
        self.running: list[InFlightRecord] = []
        self.done: list[int] = []
        self.scheduler = Scheduler(limits)
        self.scheduler.assign({PLACE: None})
        self.point: CommitPoint | None = None

    def read(self) -> int:
        count = (
            0
            if self.scheduler.partitions_to_pause()
            else min(self.scheduler.read_limit(), self.limits.read_max)
        )
        for one in self.log[self.position : self.position + count]:
            self.scheduler.admit(one, NOW_MS)
            self.position += 1
        return self.reread() + count

    def reread(self) -> int:
        """As the session's deferred reader does."""
        tracker = self.scheduler.tracker_of(PLACE)
        assert tracker is not None
        needed = self.scheduler.rereads_needed()
        if self.reread_at is None and needed:
            self.reread_at = needed[PLACE]
            tracker.start_reread()
        if self.reread_at is None:
            return 0
        batch = self.log[self.reread_at : self.reread_at + self.limits.read_max]
        self.reread_at += len(batch)
        found = sum(self.scheduler.readmit(one, NOW_MS) is not None for one in batch)
        if not tracker.is_rereading:
            self.reread_at = None
        else:
            assert self.reread_at < tracker.next_offset, "a deferred record was not found"
        return found

    def begin(self) -> None:
        while len(self.running) < 5 and (item := self.scheduler.take()) is not None:
            assert item.record.key not in {one.record.key for one in self.running} - {None}
            self.running.append(item)

    def fail(self, number: int) -> None:
        """The call backs off, and its key stays busy."""
        self.scheduler.back_off(self.running.pop(number % len(self.running)), NOW_MS + 1000)

    def promote(self) -> None:
        self.scheduler.promote_due(NOW_MS + 1000)
        self.begin()

    def end(self, number: int) -> None:
        item = self.running.pop(number % len(self.running))
        end(self.scheduler, item)
        self.done.append(item.record.offset)

    def commit(self) -> None:
        points = self.scheduler.commit_points()
        self.scheduler.mark_committed(points)
        self.point = points.get(PLACE, self.point)

    def crash(self) -> None:
        """A successor continues from the commit."""
        self.commit()
        self.scheduler = Scheduler(self.limits)
        self.scheduler.assign({PLACE: self.point})
        self.position = 0 if self.point is None else int(self.point.offset)
        self.reread_at, self.running = None, []

    def drain(self, *, but: str | None = None) -> None:
        """Runs everything, except calls of one key, which never end."""
        stuck = None if but is None else but.encode()
        for _ in range(100 * len(self.log) + 100):
            self.read()
            if but is None:
                self.promote()
            self.begin()
            ending = [
                n for n, one in enumerate(self.running) if but is None or one.record.key != stuck
            ]
            if ending:
                self.end(ending[0])
            elif (
                self.position == len(self.log)
                and self.reread_at is None
                and not self.scheduler.rereads_needed()
            ):
                return
        raise AssertionError("the model makes no progress")


TINY = SchedulerLimits(held_max=4, read_max=3)
MOVES = st.lists(
    st.one_of(st.sampled_from(["read", "crash", "fail", "promote"]), st.integers(0, 9)), max_size=60
)
KEYS = st.lists(st.sampled_from(["a", "a", "a", "b", "c", None]), max_size=60)


@settings(deadline=None, max_examples=200)
@given(keys=KEYS, moves=MOVES)
def test_every_call_runs_once_and_each_key_in_order(
    keys: list[str | None], moves: list[str | int]
) -> None:
    model = Model(keys, TINY)
    for move in moves:
        if move == "crash":
            model.crash()
        elif move == "read":
            model.read()
            model.begin()
        elif move == "promote":
            model.promote()
        elif move == "fail" and model.running:
            model.fail(0)
        elif isinstance(move, int) and model.running:
            model.end(move)
        shares = model.scheduler.in_flight.counts
        assert all(shares[share] <= TINY.held_max + TINY.read_max for share in MemoryShare)
    model.drain()
    assert sorted(model.done) == list(range(len(keys)))
    for key in {key for key in keys if key is not None}:
        own = [n for n in model.done if keys[n] == key]
        assert own == sorted(own)
    assert model.scheduler.in_flight.open == 0
    model.commit()
    assert not keys or model.point == CommitPoint(Offset(len(keys)), "g2")


@settings(deadline=None, max_examples=100)
@given(keys=KEYS)
def test_a_call_that_never_ends_blocks_no_other_key(
    keys: list[str | None],
) -> None:
    model = Model(keys, TINY)
    model.drain(but="a")
    assert sorted(model.done) == [n for n, key in enumerate(keys) if key != "a"]
    model.crash()
    model.drain()
    assert sorted(model.done) == list(range(len(keys)))
