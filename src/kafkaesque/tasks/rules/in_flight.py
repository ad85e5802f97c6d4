"""The records that a worker holds, and how much memory they take.

Memory is divided into shares, so that records which wait for one thing never stop others from being read:
calls that are ready, calls blocked by their key, failed calls in backoff, and delayed calls each have a
share. Running calls have none: `concurrency` bounds them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from enum import Enum

from kafkaesque.client.ports import Received
from kafkaesque.events import tasks as protocol
from kafkaesque.model.ids import TopicPartition
from kafkaesque.tasks.rules.call import TaskCall
from kafkaesque.tasks.rules.offset_tracker import OffsetTracker
from kafkaesque.tasks.rules.outcome import Dead
from kafkaesque.tasks.rules.queues import MinSet

UNDECLARED = "unknown"
"""The name under which all tasks that the application does not declare are counted."""


class RecordState(Enum):
    """The reason why a record is held."""

    READY = "a free slot to run"
    BLOCKED = "another call of its key"
    DELAYED = "its due time, in a retry topic"
    BACKOFF = "its next attempt; it keeps its key busy (ordered retries)"
    RUNNING = "its end, or for its follow-up records to be in the log"


class MemoryShare(Enum):
    """The parts into which the memory for held records is divided."""

    READY = "ready"
    BLOCKED = "blocked by its key"
    BACKOFF = "in backoff, key busy"
    DELAYED = "delayed"


@dataclass(slots=True, eq=False)
class InFlightRecord:
    """One record that a worker holds."""

    record: Received
    tracker: OffsetTracker
    """The partition's tracker at the time of reading. After the partition was lost and reassigned it
    has another one, and the end of this record no longer counts."""
    call: TaskCall | None
    dead: Dead | None = None
    """Set if the record is not a call."""
    task: str = UNDECLARED
    """The task's name if the application declares it."""
    state: RecordState = RecordState.READY

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.record.topic, self.record.partition)

    @property
    def is_delayed_topic(self) -> bool:
        return protocol.tier_of(self.record.topic) is not None

    @property
    def size_bytes(self) -> int:
        return len(self.record.value or b"") + len(self.record.key or b"")

    @property
    def share(self) -> MemoryShare | None:
        if self.state is RecordState.RUNNING:
            return None
        if self.state is RecordState.BLOCKED and not self.is_delayed_topic:
            return MemoryShare.BLOCKED
        if self.state in (RecordState.BLOCKED, RecordState.DELAYED):
            return MemoryShare.DELAYED
        return MemoryShare.BACKOFF if self.state is RecordState.BACKOFF else MemoryShare.READY


class InFlightTracker:
    """Counts held records. Each is added once, moves from state to state, and is removed once."""

    def __init__(self) -> None:
        self.open = 0
        self.counts: Counter[MemoryShare] = Counter()
        self.size_bytes: Counter[MemoryShare] = Counter()
        self.active: Counter[TopicPartition] = Counter()
        """By partition: records that run or are ready."""
        self.waiting: Counter[TopicPartition] = Counter()
        """By partition: records that wait for their key or their due time."""
        self._states: dict[str, Counter[RecordState]] = defaultdict(Counter)
        self._ages: dict[str, MinSet[tuple[int, str, int, int]]] = defaultdict(MinSet)
        """By task: unfinished calls of queues. Retry topics do not count."""

    def add(self, item: InFlightRecord, state: RecordState) -> None:
        self.open += 1
        item.state = state
        self._count(item, 1)
        if not item.is_delayed_topic:
            self._ages[item.task].add(_age(item))

    def move(self, item: InFlightRecord, state: RecordState) -> None:
        self._count(item, -1)
        item.state = state
        self._count(item, 1)

    def remove(self, item: InFlightRecord) -> None:
        self.open -= 1
        self._count(item, -1)
        if not item.is_delayed_topic:
            self._ages[item.task].discard(_age(item))

    def _count(self, item: InFlightRecord, change: int) -> None:
        self._states[item.task][item.state] += change
        share = item.share
        if share is not None:
            self.counts[share] += change
            self.size_bytes[share] += change * item.size_bytes
        if item.state in (RecordState.READY, RecordState.RUNNING):
            self.active[item.place] += change
        elif item.state in (RecordState.BLOCKED, RecordState.DELAYED):
            self.waiting[item.place] += change

    # -- by task -------------------------------------------------------------------------------------

    def by_task(self, *states: RecordState) -> dict[str, int]:
        return {
            task: sum(counts[state] for state in states)
            for task, counts in dict(self._states).items()
        }

    def oldest_ms(self) -> dict[str, int]:
        """By task: the timestamp of its oldest unfinished call that was read from a queue."""
        found = {task: ages.minimum for task, ages in dict(self._ages).items()}
        return {task: oldest[0] for task, oldest in found.items() if oldest is not None}


def _age(item: InFlightRecord) -> tuple[int, str, int, int]:
    record = item.record
    return (int(record.timestamp_ms), record.topic, int(record.partition), int(record.offset))
