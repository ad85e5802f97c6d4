"""Everything a worker holds: what waits, what is under way, what is done. Pure.

Records come in from the log in the order of their partitions; calls go out one at a time per key; ends
come back in any order. The desk says what to run next, what to commit, and which partitions to stop
reading because too much of them is held.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kafkaesque.client.ports import CommitPoint, Received
from kafkaesque.events import tasks as words
from kafkaesque.events.tasks import MalformedTask
from kafkaesque.model.ids import Offset, TopicPartition
from kafkaesque.model.limits import MIB
from kafkaesque.tasks import outcome as reasons
from kafkaesque.tasks.call import Call, read_call
from kafkaesque.tasks.due import DueHeap
from kafkaesque.tasks.keyed import KeyedQueue
from kafkaesque.tasks.outcome import Dead, Failure
from kafkaesque.tasks.progress import WINDOW_OFFSETS_MAX, Progress
from kafkaesque.tasks.retry import waits_until_ms


@dataclass(slots=True, eq=False)
class Item:
    """One record in a worker's hands."""

    record: Received
    progress: Progress
    """Of the time in which this worker has had the partition: a later one does not count its end."""
    call: Call | None
    dead: Dead | None = None
    """Set for what is no call at all."""

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.record.topic, self.record.partition)

    @property
    def size_bytes(self) -> int:
        return len(self.record.value or b"") + len(self.record.key or b"")


@dataclass(frozen=True, slots=True)
class DeskLimits:
    """How much is held. `read_max`: as many may come in after the desk has said stop."""

    held_max: int = 10_000
    held_bytes_max: int = 64 * MIB
    delayed_max: int = 2_000
    """For each partition of a delayed topic."""
    read_max: int = 500


class Desk:
    """See the module."""

    def __init__(self, limits: DeskLimits) -> None:
        self._limits = limits
        self._progress: dict[TopicPartition, Progress] = {}
        self._queue: KeyedQueue[Item] = KeyedQueue(lambda item: item.record.key)
        self._delayed: DueHeap[Item] = DueHeap()
        self._held: dict[tuple[TopicPartition, Offset], Item] = {}
        """Failed calls that wait here for their next attempt and hold their key meanwhile."""
        self._resumed: deque[Item] = deque()
        self._delayed_counts: Counter[TopicPartition] = Counter()
        self._open = 0
        self._open_bytes = 0

    # -- partitions --------------------------------------------------------------------------------

    def assign(self, points: Mapping[TopicPartition, CommitPoint | None]) -> None:
        for place, point in points.items():
            self._progress[place] = Progress(point)

    def withdraw(self, places: Iterable[TopicPartition]) -> None:
        """Let go of what has not begun; what is under way may still end and be committed."""
        leaving = set(places)
        dropped = self._queue.drop(lambda item: item.place in leaving)
        delayed = self._delayed.drop(lambda item: item.place in leaving)
        for item in delayed:
            if self._held.pop((item.place, item.record.offset), None) is not None:
                self._queue.release(item)
            else:
                self._delayed_counts[item.place] -= 1
        resumed = [item for item in self._resumed if item.place in leaving]
        self._resumed = deque(item for item in self._resumed if item.place not in leaving)
        for item in resumed:
            self._queue.release(item)
        for item in (*dropped, *delayed, *resumed):
            self._let_go(item)

    def forget(self, places: Iterable[TopicPartition]) -> None:
        """They are another's now; ends of what is still under way count for nothing."""
        leaving = list(places)
        self.withdraw(leaving)
        for place in leaving:
            self._progress.pop(place, None)
            self._delayed_counts.pop(place, None)

    # -- in, out, done -----------------------------------------------------------------------------

    def admit(self, record: Received, now_ms: int) -> Item | None:
        """Take a record in; None if it is done already."""
        place = TopicPartition(record.topic, record.partition)
        progress = self._progress.get(place)
        if progress is None:
            progress = self._progress[place] = Progress()
        if not progress.begin(record.offset, record.timestamp_ms):
            return None
        item = Item(record, progress, None)
        self._open += 1
        self._open_bytes += item.size_bytes
        try:
            item.call = read_call(record)
        except MalformedTask as error:
            item.dead = Dead(reasons.UNREADABLE, Failure("MalformedTask", str(error)))
        due_ms = self._due_ms(item, now_ms)
        if due_ms > now_ms:
            self._delayed.add(due_ms, item)
            self._delayed_counts[place] += 1
        else:
            self._queue.add(item)
        return item

    def _due_ms(self, item: Item, now_ms: int) -> int:
        tier = words.tier_of(item.record.topic)
        if tier is None or item.call is None or item.call.due_ms is None:
            return now_ms
        return waits_until_ms(tier, item.call.due_ms, now_ms)

    def ripen(self, now_ms: int) -> None:
        """Move what has become due to where `take` finds it."""
        for item in self._delayed.take(now_ms):
            if self._held.pop((item.place, item.record.offset), None) is not None:
                self._resumed.append(item)
            else:
                self._delayed_counts[item.place] -= 1
                self._queue.add(item)

    def take(self) -> Item | None:
        if self._resumed:
            return self._resumed.popleft()
        return self._queue.take()

    def hold(self, item: Item, due_ms: int) -> None:
        """A taken item is to run again, and its key waits with it."""
        self._held[(item.place, item.record.offset)] = item
        self._delayed.add(due_ms, item)

    def release(self, item: Item) -> None:
        """A taken item no longer runs: the next of its key may."""
        self._queue.release(item)

    def finish(self, item: Item) -> None:
        """All that follows from a released item is in the log."""
        self._let_go(item)
        if self.is_ours(item):
            item.progress.finish(item.record.offset)

    def _let_go(self, item: Item) -> None:
        self._open -= 1
        self._open_bytes -= item.size_bytes

    def is_ours(self, item: Item) -> bool:
        return self._progress.get(item.place) is item.progress

    # -- what the worker asks ------------------------------------------------------------------------

    @property
    def open_count(self) -> int:
        return self._open

    @property
    def waiting_count(self) -> int:
        return len(self._queue) + len(self._resumed)

    @property
    def delayed_count(self) -> int:
        return len(self._delayed)

    @property
    def next_due_ms(self) -> int | None:
        return self._delayed.next_due_ms

    def oldest_ms(self) -> int | None:
        """Time of the oldest call of a queue that is read and not done; delays do not count."""
        times = (
            progress.oldest_ms
            for place, progress in self._progress.items()
            if words.tier_of(place.topic) is None
        )
        return min((time_ms for time_ms in times if time_ms is not None), default=None)

    def points(self) -> dict[TopicPartition, CommitPoint]:
        """What is to be committed: places whose point has changed."""
        found = {place: progress.point() for place, progress in self._progress.items()}
        return {place: point for place, point in found.items() if point is not None}

    def committed(self, points: Mapping[TopicPartition, CommitPoint]) -> None:
        for place, point in points.items():
            if place in self._progress:
                self._progress[place].committed(point)

    def crowded(self) -> frozenset[TopicPartition]:
        """Partitions not to be read for now."""
        limits = self._limits
        window_max = WINDOW_OFFSETS_MAX - 2 * limits.read_max
        is_heavy = self._open_bytes >= limits.held_bytes_max
        is_full = self._open - self.delayed_count >= limits.held_max
        return frozenset(
            place
            for place, progress in self._progress.items()
            if progress.window >= window_max
            or self._delayed_counts[place] >= limits.delayed_max
            or (is_full and words.tier_of(place.topic) is None)
            or is_heavy
        )

    def overstayed(self) -> list[Item]:
        """Held items that keep a whole partition from going on: they must be given up."""
        window_max = WINDOW_OFFSETS_MAX - 2 * self._limits.read_max
        found = []
        for place, progress in self._progress.items():
            lowest = progress.lowest_open
            if progress.window >= window_max and lowest is not None:
                item = self._held.pop((place, lowest), None)
                if item is not None:
                    self._delayed.drop(lambda other, item=item: other is item)  # type: ignore[misc]
                    found.append(item)
        return found
