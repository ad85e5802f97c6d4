"""The records in a worker's hands and how much of its memory they take. Pure.

Memory is shared out, so that what waits for one thing never keeps another from being read: calls that
may begin, calls that wait for their key, failed ones that hold their key, and delayed ones have a share
each. What runs has none: `concurrency` bounds it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from enum import Enum

from kafkaesque.client.ports import Received
from kafkaesque.events import tasks as words
from kafkaesque.model.ids import TopicPartition
from kafkaesque.tasks.rules.call import Call
from kafkaesque.tasks.rules.lowest import Lowest
from kafkaesque.tasks.rules.outcome import Dead
from kafkaesque.tasks.rules.progress import Progress

UNKNOWN = "unknown"
"""Stands for every task that is not declared."""


class State(Enum):
    """What a record in a worker's hands waits for."""

    READY = "a place to run"
    BEHIND = "the call of its key"
    DELAYED = "its time, in a delayed topic"
    HELD = "its next attempt, and its key with it"
    RUNNING = "nothing, or for its consequences to be in the log"


class Share(Enum):
    """Of the memory."""

    READY = "may begin"
    BEHIND = "waits for its key"
    HELD = "failed, and holds its key"
    DELAYED = "delayed"


@dataclass(slots=True, eq=False)
class Item:
    """One record in a worker's hands."""

    record: Received
    progress: Progress
    """Of the time in which this worker has had the partition: a later one does not count its end."""
    call: Call | None
    dead: Dead | None = None
    """Set for what is no call at all."""
    task: str = UNKNOWN
    """Its name if it is declared."""
    state: State = State.READY

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.record.topic, self.record.partition)

    @property
    def is_of_tier(self) -> bool:
        return words.tier_of(self.record.topic) is not None

    @property
    def size_bytes(self) -> int:
        return len(self.record.value or b"") + len(self.record.key or b"")

    @property
    def share(self) -> Share | None:
        if self.state is State.RUNNING:
            return None
        if self.state is State.BEHIND and not self.is_of_tier:
            return Share.BEHIND
        if self.state in (State.BEHIND, State.DELAYED):
            return Share.DELAYED
        return Share.HELD if self.state is State.HELD else Share.READY


class Holdings:
    """Counts of what is held. Each item enters once, moves from state to state, and leaves once."""

    def __init__(self) -> None:
        self.open = 0
        self.counts: Counter[Share] = Counter()
        self.size_bytes: Counter[Share] = Counter()
        self.active: Counter[TopicPartition] = Counter()
        """Of a partition: what runs or may begin."""
        self.waiting: Counter[TopicPartition] = Counter()
        """Of a partition: what waits for its key or its time."""
        self._states: dict[str, Counter[State]] = defaultdict(Counter)
        self._times: dict[str, Lowest[tuple[int, str, int, int]]] = defaultdict(Lowest)
        """By task: calls of queues that are not done; delays do not count."""

    def enter(self, item: Item, state: State) -> None:
        self.open += 1
        item.state = state
        self._count(item, 1)
        if not item.is_of_tier:
            self._times[item.task].add(_age(item))

    def move(self, item: Item, state: State) -> None:
        self._count(item, -1)
        item.state = state
        self._count(item, 1)

    def leave(self, item: Item) -> None:
        self.open -= 1
        self._count(item, -1)
        if not item.is_of_tier:
            self._times[item.task].discard(_age(item))

    def _count(self, item: Item, change: int) -> None:
        self._states[item.task][item.state] += change
        share = item.share
        if share is not None:
            self.counts[share] += change
            self.size_bytes[share] += change * item.size_bytes
        if item.state in (State.READY, State.RUNNING):
            self.active[item.place] += change
        elif item.state in (State.BEHIND, State.DELAYED):
            self.waiting[item.place] += change

    # -- by task -------------------------------------------------------------------------------------

    def by_task(self, *states: State) -> dict[str, int]:
        return {
            task: sum(counts[state] for state in states)
            for task, counts in dict(self._states).items()
        }

    def oldest_ms(self) -> dict[str, int]:
        """By task: the time of its oldest call of a queue that is read and not done."""
        found = {task: times.first for task, times in dict(self._times).items()}
        return {task: first[0] for task, first in found.items() if first is not None}


def _age(item: Item) -> tuple[int, str, int, int]:
    record = item.record
    return (int(record.timestamp_ms), record.topic, int(record.partition), int(record.offset))
