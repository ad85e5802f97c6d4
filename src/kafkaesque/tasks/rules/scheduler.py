"""The scheduler of a worker: what to run next, what to commit, which partitions to pause.

Records are admitted in the order of their partitions. Calls are taken one at a time per key, and finish in
any order. A partition is paused if too many of its records are held. A key with many waiting calls is no
reason to pause: its calls are deferred, that is, left in the log and read again when the key has room
(`rereads_needed`, `readmit`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kafkaesque.client.ports import CommitPoint, Received
from kafkaesque.events import tasks as protocol
from kafkaesque.events.tasks import MalformedTask
from kafkaesque.model.ids import Offset, TopicPartition
from kafkaesque.model.limits import MIB
from kafkaesque.tasks.rules.call import read_call
from kafkaesque.tasks.rules.in_flight import (
    UNDECLARED,
    InFlightRecord,
    InFlightTracker,
    MemoryShare,
    RecordState,
)
from kafkaesque.tasks.rules.offset_tracker import OffsetTracker
from kafkaesque.tasks.rules.outcome import CallFailure, Dead, DeadReason
from kafkaesque.tasks.rules.queues import DueHeap, KeyedQueue
from kafkaesque.tasks.rules.retry import waits_until_ms


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """How many records are held. Up to `read_max` more may arrive after a partition was paused."""

    held_max: int = 10_000
    """For each memory share."""
    held_bytes_max: int = 64 * MIB
    """For all memory shares together; each gets the same part."""
    delayed_max: int = 2_000
    """For each partition of a retry topic."""
    read_max: int = 500

    @property
    def share_bytes_max(self) -> int:
        return self.held_bytes_max // len(MemoryShare)


class Scheduler:
    """Holds the records of the partitions that are assigned to a worker."""

    def __init__(self, limits: SchedulerLimits, declared_tasks: Iterable[str] = ()) -> None:
        self._limits = limits
        self._declared_tasks = frozenset(declared_tasks)
        self._trackers: dict[TopicPartition, OffsetTracker] = {}
        self._queue: KeyedQueue[InFlightRecord] = KeyedQueue(lambda item: item.record.key)
        self._delayed: DueHeap[InFlightRecord] = DueHeap()
        self._backoff: dict[tuple[TopicPartition, Offset], InFlightRecord] = {}
        """Failed calls with ordered retries: they wait for the next attempt and keep their key busy."""
        self._resumed: deque[InFlightRecord] = deque()
        """Calls whose backoff has ended. They come before all others, since they occupy their keys."""
        self.in_flight = InFlightTracker()

    # -- partitions --------------------------------------------------------------------------------

    def assign(self, points: Mapping[TopicPartition, CommitPoint | None]) -> None:
        """Partitions with their committed points."""
        for place, point in points.items():
            self._trackers[place] = OffsetTracker(point)

    def withdraw(self, places: Iterable[TopicPartition]) -> None:
        """Drops what has not started. Running calls may still finish and be committed."""
        leaving = set(places)
        dropped, following = self._queue.remove_if(lambda item: item.place in leaving)
        delayed = self._delayed.remove_if(lambda item: item.place in leaving)
        resumed = [item for item in self._resumed if item.place in leaving]
        self._resumed = deque(item for item in self._resumed if item.place not in leaving)
        for item in following:
            self.in_flight.move(item, RecordState.READY)
        for item in (*dropped, *delayed, *resumed):
            self.in_flight.remove(item)
        backoff = [item for item in delayed if self._backoff.pop(_place_of(item), None) is not None]
        for item in (*backoff, *resumed):
            self.release(item)

    def forget(self, places: Iterable[TopicPartition]) -> None:
        """The partitions belong to another worker now; ends of running calls no longer count."""
        leaving = list(places)
        self.withdraw(leaving)
        for place in leaving:
            self._trackers.pop(place, None)

    # -- admit, take, finish -------------------------------------------------------------------------

    def admit(self, record: Received, now_ms: int) -> InFlightRecord | None:
        """Takes a record in. Returns None if it is done already or deferred."""
        place = TopicPartition(record.topic, record.partition)
        tracker = self._trackers.get(place)
        if tracker is None:
            tracker = self._trackers[place] = OffsetTracker()
        if not tracker.read(record.offset, record.key):
            return None
        if record.key is not None and self._must_defer(tracker, record, record.key):
            tracker.defer(record.offset, record.key)
            return None
        tracker.start(record.offset, record.key)
        return self._add(record, tracker, now_ms)

    def _must_defer(self, tracker: OffsetTracker, record: Received, key: bytes) -> bool:
        if key in tracker.deferred:
            return True
        is_of_queue = protocol.tier_of(record.topic) is None
        return is_of_queue and not self._has_room_for(key) and tracker.may_defer(record.offset, key)

    def _has_room_for(self, key: bytes) -> bool:
        """Whether one more call of `key` may be held. A key may have as many calls waiting as all others
        leave free, so no key takes all the room (the dynamic threshold of Choudhury and Hahne)."""
        if not self._queue.is_busy(key):
            return True
        in_flight, limits = self.in_flight, self._limits
        free = limits.held_max - in_flight.counts[MemoryShare.BLOCKED]
        has_bytes = in_flight.size_bytes[MemoryShare.BLOCKED] < limits.share_bytes_max
        return has_bytes and self._queue.blocked_by(key) < free

    def _add(self, record: Received, tracker: OffsetTracker, now_ms: int) -> InFlightRecord:
        item = InFlightRecord(record, tracker, None)
        try:
            item.call = read_call(record)
            is_declared = item.call.task_name in self._declared_tasks
            item.task = item.call.task_name if is_declared else UNDECLARED
        except MalformedTask as error:
            item.dead = Dead(DeadReason.UNREADABLE, CallFailure("MalformedTask", str(error)))
        due_ms = self._due_ms(item, now_ms)
        if due_ms > now_ms:
            self._delayed.add(due_ms, item)
            self.in_flight.add(item, RecordState.DELAYED)
        else:
            is_ready = self._queue.add(item)
            self.in_flight.add(item, RecordState.READY if is_ready else RecordState.BLOCKED)
        return item

    def _due_ms(self, item: InFlightRecord, now_ms: int) -> int:
        tier = protocol.tier_of(item.record.topic)
        if tier is None or item.call is None or item.call.due_ms is None:
            return now_ms
        return waits_until_ms(tier, item.call.due_ms, now_ms)

    def promote_due(self, now_ms: int) -> None:
        """Makes the calls that are due available to `take`."""
        for item in self._delayed.pop_due(now_ms):
            if self._backoff.pop(_place_of(item), None) is not None:
                self._resumed.append(item)
                self.in_flight.move(item, RecordState.READY)
            else:
                is_ready = self._queue.add(item)
                self.in_flight.move(item, RecordState.READY if is_ready else RecordState.BLOCKED)

    def take(self) -> InFlightRecord | None:
        """Returns the next call to run, if any."""
        item = self._resumed.popleft() if self._resumed else self._queue.take()
        if item is not None:
            self.in_flight.move(item, RecordState.RUNNING)
        return item

    def back_off(self, item: InFlightRecord, due_ms: int) -> None:
        """A taken call runs again at `due_ms`; its key stays busy until then."""
        self._backoff[_place_of(item)] = item
        self._delayed.add(due_ms, item)
        self.in_flight.move(item, RecordState.BACKOFF)

    def release(self, item: InFlightRecord) -> None:
        """A taken call no longer runs: the next call of its key may."""
        following = self._queue.release(item)
        if following is not None:
            self.in_flight.move(following, RecordState.READY)

    def finish(self, item: InFlightRecord) -> None:
        """All records that follow from a released call are in the log."""
        self.in_flight.remove(item)
        if self.is_current(item):
            item.tracker.finish(item.record.offset, item.record.key)

    def is_current(self, item: InFlightRecord) -> bool:
        """Whether the partition has stayed assigned since the record was read."""
        return self._trackers.get(item.place) is item.tracker

    # -- deferred records ----------------------------------------------------------------------------

    def tracker_of(self, place: TopicPartition) -> OffsetTracker | None:
        return self._trackers.get(place)

    def rereads_needed(self) -> dict[TopicPartition, Offset]:
        """Partitions that have a deferred key without a waiting call here, and the offset to read from."""
        return {
            place: Offset(min(deferred.start for deferred in tracker.deferred.values()))
            for place, tracker in self._trackers.items()
            if any(
                self._queue.blocked_by(key) == 0 and self._has_room_for(key)
                for key in tracker.deferred
            )
        }

    def readmit(self, record: Received, now_ms: int) -> InFlightRecord | None:
        """Takes in a deferred record that was read again. Returns None if it was not deferred or its key
        has no room."""
        tracker = self._trackers.get(TopicPartition(record.topic, record.partition))
        deferred = None if tracker is None else tracker.deferred.get(record.key or b"")
        if tracker is None or deferred is None or record.key is None:
            return None
        if not deferred.is_rereading or not deferred.start <= record.offset < tracker.next_offset:
            return None
        if not self._has_room_for(record.key):
            deferred.is_rereading = False
            return None
        tracker.resume(record.offset, record.key)
        return self._add(record, tracker, now_ms)

    # -- limits and commits --------------------------------------------------------------------------

    @property
    def next_due_ms(self) -> int | None:
        return self._delayed.next_due_ms

    @property
    def deferred_count(self) -> int:
        return sum(tracker.deferred_count for tracker in self._trackers.values())

    def commit_points(self) -> dict[TopicPartition, CommitPoint]:
        """What to commit: the partitions whose point has changed."""
        found = {place: tracker.commit_point() for place, tracker in self._trackers.items()}
        return {place: point for place, point in found.items() if point is not None}

    def mark_committed(self, points: Mapping[TopicPartition, CommitPoint]) -> None:
        for place, point in points.items():
            if place in self._trackers:
                self._trackers[place].mark_committed(point)

    def partitions_to_pause(self) -> frozenset[TopicPartition]:
        return frozenset(
            place for place, tracker in self._trackers.items() if self._is_full(place, tracker)
        )

    def _is_full(self, place: TopicPartition, tracker: OffsetTracker) -> bool:
        limits, in_flight = self._limits, self.in_flight
        if tracker.room < 1:
            return True
        if protocol.tier_of(place.topic) is None:
            share, waiting_max = MemoryShare.READY, limits.held_max
            has_too_many = in_flight.counts[share] >= limits.held_max
        else:
            share, waiting_max, has_too_many = MemoryShare.DELAYED, limits.delayed_max, False
        has_too_much = in_flight.size_bytes[share] >= limits.share_bytes_max
        return has_too_many or has_too_much or in_flight.waiting[place] >= waiting_max

    def read_limit(self) -> int:
        """How many records may be read now, whichever partitions they come from."""
        paused = self.partitions_to_pause()
        rooms = (tracker.room for place, tracker in self._trackers.items() if place not in paused)
        return min(rooms, default=self._limits.read_max)

    def evict_backoffs(self) -> list[InFlightRecord]:
        """Removes and returns calls in backoff that must be given up: they exceed their memory share, or
        nothing else of their partition can make progress."""
        found = []
        in_flight, limits = self.in_flight, self._limits
        if (
            in_flight.counts[MemoryShare.BACKOFF] > limits.held_max
            or in_flight.size_bytes[MemoryShare.BACKOFF] > limits.share_bytes_max
        ):
            found.append(next(iter(self._backoff.values())))
        for place, tracker in self._trackers.items():
            if tracker.room < 1 and not in_flight.active[place]:
                offsets = [offset for own, offset in self._backoff if own == place]
                if offsets:
                    found.append(self._backoff[place, min(offsets)])
        unique = list(dict.fromkeys(found))
        for item in unique:
            del self._backoff[_place_of(item)]
            self._delayed.remove_if(lambda other, item=item: other is item)  # type: ignore[misc]
            self.in_flight.move(item, RecordState.RUNNING)
        return unique


def _place_of(item: InFlightRecord) -> tuple[TopicPartition, Offset]:
    return item.place, item.record.offset
