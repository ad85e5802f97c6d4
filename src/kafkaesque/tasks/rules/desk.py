"""Everything a worker holds: what waits, what is under way, what is done. Pure.

Records come in from the log in the order of their partitions; calls go out one at a time per key; ends
come back in any order. The desk says what to run next, what to commit, and which partitions to stop
reading because too much of them is held. A key whose calls wait in great number is no reason for that:
they are left in the log and read again when it is their turn (`wanted`, `take_back`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kafkaesque.client.ports import CommitPoint, Received
from kafkaesque.events import tasks as words
from kafkaesque.events.tasks import MalformedTask
from kafkaesque.model.ids import Offset, TopicPartition
from kafkaesque.model.limits import MIB
from kafkaesque.tasks.rules import outcome as reasons
from kafkaesque.tasks.rules.call import read_call
from kafkaesque.tasks.rules.due import DueHeap
from kafkaesque.tasks.rules.holdings import UNKNOWN, Holdings, Item, Share, State
from kafkaesque.tasks.rules.keyed import KeyedQueue
from kafkaesque.tasks.rules.outcome import Dead, Failure
from kafkaesque.tasks.rules.progress import Progress
from kafkaesque.tasks.rules.retry import waits_until_ms


@dataclass(frozen=True, slots=True)
class DeskLimits:
    """How much is held. `read_max`: as many may come in after the desk has said stop."""

    held_max: int = 10_000
    """Of each share of the memory."""
    held_bytes_max: int = 64 * MIB
    """Of all of them; each has as much."""
    delayed_max: int = 2_000
    """For each partition of a delayed topic."""
    read_max: int = 500

    @property
    def share_bytes_max(self) -> int:
        return self.held_bytes_max // len(Share)


class Desk:
    """See the module."""

    def __init__(self, limits: DeskLimits, known: Iterable[str] = ()) -> None:
        self._limits = limits
        self._known = frozenset(known)
        """Names of tasks that are declared."""
        self._progress: dict[TopicPartition, Progress] = {}
        self._queue: KeyedQueue[Item] = KeyedQueue(lambda item: item.record.key)
        self._delayed: DueHeap[Item] = DueHeap()
        self._held: dict[tuple[TopicPartition, Offset], Item] = {}
        """Failed calls that wait here for their next attempt and hold their key meanwhile."""
        self._resumed: deque[Item] = deque()
        self.holdings = Holdings()

    # -- partitions --------------------------------------------------------------------------------

    def assign(self, points: Mapping[TopicPartition, CommitPoint | None]) -> None:
        for place, point in points.items():
            self._progress[place] = Progress(point)

    def withdraw(self, places: Iterable[TopicPartition]) -> None:
        """Let go of what has not begun; what is under way may still end and be committed."""
        leaving = set(places)
        dropped, following = self._queue.drop(lambda item: item.place in leaving)
        delayed = self._delayed.drop(lambda item: item.place in leaving)
        resumed = [item for item in self._resumed if item.place in leaving]
        self._resumed = deque(item for item in self._resumed if item.place not in leaving)
        for item in following:
            self.holdings.move(item, State.READY)
        for item in (*dropped, *delayed, *resumed):
            self.holdings.leave(item)
        held = [item for item in delayed if self._held.pop(_place_of(item), None) is not None]
        for item in (*held, *resumed):
            self.release(item)

    def forget(self, places: Iterable[TopicPartition]) -> None:
        """They are another's now; ends of what is still under way count for nothing."""
        leaving = list(places)
        self.withdraw(leaving)
        for place in leaving:
            self._progress.pop(place, None)

    # -- in, out, done -----------------------------------------------------------------------------

    def admit(self, record: Received, now_ms: int) -> Item | None:
        """Take a record in; None if it is done already, or left in the log for later."""
        place = TopicPartition(record.topic, record.partition)
        progress = self._progress.get(place)
        if progress is None:
            progress = self._progress[place] = Progress()
        if not progress.read(record.offset, record.key):
            return None
        if record.key is not None and self._must_leave(progress, record, record.key):
            progress.leave(record.offset, record.key)
            return None
        progress.begin(record.offset, record.key)
        return self._enter(record, progress, now_ms)

    def _must_leave(self, progress: Progress, record: Received, key: bytes) -> bool:
        if key in progress.closed:
            return True
        is_of_queue = words.tier_of(record.topic) is None
        return is_of_queue and not self._fits(key) and progress.may_close(record.offset, key)

    def _fits(self, key: bytes) -> bool:
        """Whether one more call of `key` may be held. A key may have as many waiting as all others
        leave free, so that none takes all the room (the dynamic threshold of Choudhury and Hahne)."""
        if not self._queue.is_busy(key):
            return True
        holdings, limits = self.holdings, self._limits
        free = limits.held_max - holdings.counts[Share.BEHIND]
        has_bytes = holdings.size_bytes[Share.BEHIND] < limits.share_bytes_max
        return has_bytes and self._queue.behind(key) < free

    def _enter(self, record: Received, progress: Progress, now_ms: int) -> Item:
        item = Item(record, progress, None)
        try:
            item.call = read_call(record)
            item.task = item.call.task_name if item.call.task_name in self._known else UNKNOWN
        except MalformedTask as error:
            item.dead = Dead(reasons.UNREADABLE, Failure("MalformedTask", str(error)))
        due_ms = self._due_ms(item, now_ms)
        if due_ms > now_ms:
            self._delayed.add(due_ms, item)
            self.holdings.enter(item, State.DELAYED)
        else:
            self.holdings.enter(item, State.READY if self._queue.add(item) else State.BEHIND)
        return item

    def _due_ms(self, item: Item, now_ms: int) -> int:
        tier = words.tier_of(item.record.topic)
        if tier is None or item.call is None or item.call.due_ms is None:
            return now_ms
        return waits_until_ms(tier, item.call.due_ms, now_ms)

    def ripen(self, now_ms: int) -> None:
        """Move what has become due to where `take` finds it."""
        for item in self._delayed.take(now_ms):
            if self._held.pop(_place_of(item), None) is not None:
                self._resumed.append(item)
                self.holdings.move(item, State.READY)
            else:
                self.holdings.move(item, State.READY if self._queue.add(item) else State.BEHIND)

    def take(self) -> Item | None:
        item = self._resumed.popleft() if self._resumed else self._queue.take()
        if item is not None:
            self.holdings.move(item, State.RUNNING)
        return item

    def hold(self, item: Item, due_ms: int) -> None:
        """A taken item is to run again, and its key waits with it."""
        self._held[_place_of(item)] = item
        self._delayed.add(due_ms, item)
        self.holdings.move(item, State.HELD)

    def release(self, item: Item) -> None:
        """A taken item no longer runs: the next of its key may."""
        following = self._queue.release(item)
        if following is not None:
            self.holdings.move(following, State.READY)

    def finish(self, item: Item) -> None:
        """All that follows from a released item is in the log."""
        self.holdings.leave(item)
        if self.is_ours(item):
            item.progress.finish(item.record.offset, item.record.key)

    def is_ours(self, item: Item) -> bool:
        return self._progress.get(item.place) is item.progress

    # -- left in the log -------------------------------------------------------------------------------

    def progress_of(self, place: TopicPartition) -> Progress | None:
        return self._progress.get(place)

    def wanted(self) -> dict[TopicPartition, Offset]:
        """Partitions to be read again, and from where: none of what was left of some key waits here."""
        return {
            place: Offset(min(closed.start for closed in progress.closed.values()))
            for place, progress in self._progress.items()
            if any(self._queue.behind(key) == 0 and self._fits(key) for key in progress.closed)
        }

    def take_back(self, record: Received, now_ms: int) -> Item | None:
        """A record read again: None if it is not one that was left and is now to be held."""
        progress = self._progress.get(TopicPartition(record.topic, record.partition))
        closed = None if progress is None else progress.closed.get(record.key or b"")
        if progress is None or closed is None or record.key is None:
            return None
        if not closed.is_sought or not closed.start <= record.offset < progress.next_offset:
            return None
        if not self._fits(record.key):
            closed.is_sought = False
            return None
        progress.take_back(record.offset, record.key)
        return self._enter(record, progress, now_ms)

    # -- what the worker asks ------------------------------------------------------------------------

    @property
    def next_due_ms(self) -> int | None:
        return self._delayed.next_due_ms

    @property
    def left_count(self) -> int:
        return sum(progress.left for progress in self._progress.values())

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
        return frozenset(
            place for place in self._progress if self._is_crowded(place, self._progress[place])
        )

    def _is_crowded(self, place: TopicPartition, progress: Progress) -> bool:
        limits, holdings = self._limits, self.holdings
        if progress.room < 1:
            return True
        if words.tier_of(place.topic) is None:
            share, waiting_max = Share.READY, limits.held_max
            is_full = holdings.counts[share] >= limits.held_max
        else:
            share, waiting_max, is_full = Share.DELAYED, limits.delayed_max, False
        is_heavy = holdings.size_bytes[share] >= limits.share_bytes_max
        return is_full or is_heavy or holdings.waiting[place] >= waiting_max

    def room(self) -> int:
        """How many records may be read now, whichever partitions they come from."""
        crowded = self.crowded()
        rooms = (one.room for place, one in self._progress.items() if place not in crowded)
        return min(rooms, default=self._limits.read_max)

    def overstayed(self) -> list[Item]:
        """Held items to be given up: they take more than their share of the memory, or nothing of their
        partition can go on."""
        found = []
        holdings, limits = self.holdings, self._limits
        if (
            holdings.counts[Share.HELD] > limits.held_max
            or holdings.size_bytes[Share.HELD] > limits.share_bytes_max
        ):
            found.append(next(iter(self._held.values())))
        for place, progress in self._progress.items():
            if progress.room < 1 and not holdings.active[place]:
                offsets = [offset for own, offset in self._held if own == place]
                if offsets:
                    found.append(self._held[place, min(offsets)])
        unique = list(dict.fromkeys(found))
        for item in unique:
            del self._held[_place_of(item)]
            self._delayed.drop(lambda other, item=item: other is item)  # type: ignore[misc]
            self.holdings.move(item, State.RUNNING)
        return unique


def _place_of(item: Item) -> tuple[TopicPartition, Offset]:
    return item.place, item.record.offset
