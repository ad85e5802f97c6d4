"""Fan-out of one topic to many connections: live delivery, catching up, and full sockets.

One live reader serves everybody. Each *subscriber* (a connection's inbox, or a connection in a room) has a
key and the offset of the next record it has not received. Its modes:

- LIVE: it receives the records of the live reader as they arrive.
- BEHIND: it has missed records (a resume, or its socket was full). They are in the log: a *catch-up* reads
  the partition again from the lowest missed offset and serves all subscribers that are behind. When it
  reaches the live cursor, its subscribers are LIVE. No record is lost in between, since both readers advance
  on one thread.
- BLOCKED: it is behind and its socket is still full. Only the offset is kept for it.

A subscriber receives a record if and only if the key matches and offset >= next_offset, and next_offset only
grows. So each receives every record once and in order, whatever the readers do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

from kafkaesque.client.ports import Span
from kafkaesque.edge.protocol.positions import Position
from kafkaesque.model.errors import check
from kafkaesque.model.ids import Offset, PartitionIndex, TopicId

E = TypeVar("E")


class Mode(Enum):
    OPENING = "opening"
    LIVE = "live"
    BEHIND = "behind"
    BLOCKED = "blocked"
    GONE = "gone"


class StartFrom(Enum):
    """Where a subscriber without a position starts."""

    NOW = "now"
    EARLIEST = "earliest"


@dataclass(slots=True, eq=False)
class Subscriber(Generic[E]):
    """One receiver of the records of one key."""

    key: bytes
    partition: PartitionIndex
    start_at: Position | StartFrom
    deliver: Callable[[E], bool]
    """Sends an event; returns False if there is no room for it."""
    on_live: Callable[[int], None]
    """Called once, when all missed events were sent, with their number."""
    on_refused: Callable[[str], None]
    """Called with the reason if `start_at` cannot be resumed from."""
    mode: Mode = Mode.OPENING
    next_offset: Offset = field(default=Offset(-1))
    replayed: int = 0
    announced: bool = False
    """Whether `on_live` was called. It is not called again after a later catch-up."""


@dataclass(slots=True)
class _FanOutPartition(Generic[E]):
    """One partition while it is read. All live records below `cursor` have been delivered."""

    cursor: Offset | None = None
    start: Offset = field(default=Offset(0))
    subscribers: dict[bytes, list[Subscriber[E]]] = field(default_factory=dict)
    count: int = 0
    catch_up_at: Offset | None = None
    """Next offset of the running catch-up."""
    catching_up: dict[bytes, list[Subscriber[E]]] = field(default_factory=dict)
    """The subscribers of the running catch-up, by key."""
    behind: set[Subscriber[E]] = field(default_factory=set)
    """Subscribers that wait for the next catch-up."""
    idle_since_s: float = 0.0


class FanOut(Generic[E]):
    """All subscribers of one topic."""

    def __init__(self, topic_id: TopicId) -> None:
        self.topic_id = topic_id
        self._partitions: dict[PartitionIndex, _FanOutPartition[E]] = {}
        self.spills = 0
        """How often a full socket made a subscriber BLOCKED."""

    # -- joining and leaving -------------------------------------------------------------------------

    def add(self, subscriber: Subscriber[E]) -> None:
        partition = self._partitions.setdefault(subscriber.partition, _FanOutPartition())
        partition.subscribers.setdefault(subscriber.key, []).append(subscriber)
        partition.count += 1
        if partition.cursor is not None:
            self._place(partition, subscriber)

    def remove(self, subscriber: Subscriber[E], now_s: float) -> None:
        partition = self._partitions.get(subscriber.partition)
        if partition is None or subscriber not in partition.subscribers.get(subscriber.key, ()):
            return
        _remove_from(partition.subscribers, subscriber)
        self._leave_catch_up(partition, subscriber)
        partition.count -= 1
        partition.idle_since_s = now_s
        subscriber.mode = Mode.GONE

    def _is_beyond_cursor(self, subscriber: Subscriber[E]) -> bool:
        start_at = subscriber.start_at
        return (
            isinstance(start_at, Position)
            and start_at.topic == self.topic_id
            and start_at.partition == subscriber.partition
            and start_at.offset > self.end_of(subscriber.partition).offset
        )

    def needs_end_check(self, subscriber: Subscriber[E]) -> bool:
        """Whether the subscriber starts beyond the live cursor. Either another gateway was ahead of this
        one, or the position is invented, so the end of the log must be looked up."""
        partition = self._partitions.get(subscriber.partition)
        return (
            partition is not None
            and partition.cursor is not None
            and self._is_beyond_cursor(subscriber)
        )

    def unopened(self) -> list[PartitionIndex]:
        """Partitions that have subscribers and are not read yet."""
        return [number for number, one in self._partitions.items() if one.cursor is None]

    def open(self, number: PartitionIndex, span: Span) -> None:
        """The live reader starts at the end of `span`."""
        partition = self._partitions[number]
        check(partition.cursor is None, "a partition is opened once")
        partition.cursor, partition.start = span.end, span.start
        for subscribers in list(partition.subscribers.values()):
            for subscriber in list(subscribers):
                if self._is_beyond_cursor(subscriber):
                    subscriber.on_refused("the position lies beyond the end of the log")
                else:
                    self._place(partition, subscriber)

    def close_idle(self, now_s: float, linger_s: float) -> list[PartitionIndex]:
        """Forgets and returns the partitions that have had no subscriber for `linger_s`."""
        idle = [
            number
            for number, one in self._partitions.items()
            if one.count == 0 and one.cursor is not None
            and one.catch_up_at is None and now_s - one.idle_since_s >= linger_s
        ]  # fmt: skip
        for number in idle:
            del self._partitions[number]
        return idle

    def reset_readers(self) -> None:
        """Both readers were closed: every subscriber continues from its own offset."""
        for partition in self._partitions.values():
            for subscribers in partition.subscribers.values():
                for subscriber in subscribers:
                    if subscriber.next_offset >= 0:
                        subscriber.start_at = self.position_of(subscriber)
                    if subscriber.mode is not Mode.BLOCKED:
                        subscriber.mode = Mode.OPENING
            partition.cursor = None
            partition.catch_up_at = None
            partition.catching_up, partition.behind = {}, set()

    def _place(self, partition: _FanOutPartition[E], subscriber: Subscriber[E]) -> None:
        """Decides whether the subscriber is LIVE, BEHIND or refused."""
        check(partition.cursor is not None, "a subscriber is placed once its partition is read")
        cursor = partition.cursor or Offset(0)
        if subscriber.mode is Mode.BLOCKED:
            return
        if subscriber.start_at is StartFrom.NOW:
            subscriber.next_offset = cursor
        elif subscriber.start_at is StartFrom.EARLIEST:
            subscriber.next_offset = partition.start
        elif isinstance(subscriber.start_at, Position):
            reason = self._refusal(partition, subscriber.start_at, subscriber.partition)
            if reason is not None:
                subscriber.on_refused(reason)
                return
            subscriber.next_offset = Offset(subscriber.start_at.offset + 1)
        if subscriber.next_offset >= cursor:
            self._make_live(subscriber)
        else:
            subscriber.mode = Mode.BEHIND
            partition.behind.add(subscriber)

    def _refusal(
        self, partition: _FanOutPartition[E], start_at: Position, number: PartitionIndex
    ) -> str | None:
        if start_at.topic != self.topic_id:
            return "the topic was deleted and created again"
        if start_at.partition != number:
            return "the position is of another partition"
        if start_at.offset + 1 < partition.start:
            return "the log no longer goes back so far"
        return None

    def _make_live(self, subscriber: Subscriber[E]) -> None:
        subscriber.mode = Mode.LIVE
        if not subscriber.announced:
            subscriber.announced = True
            subscriber.on_live(subscriber.replayed)

    # -- the live reader -----------------------------------------------------------------------------

    def deliver_live(self, number: PartitionIndex, offset: Offset, key: bytes, event: E) -> int:
        """Delivers a record to the LIVE subscribers of its key. Returns how many received it."""
        partition = self._partitions.get(number)
        subscribers = None if partition is None else partition.subscribers.get(key)
        if not subscribers:
            return 0
        delivered = 0
        for subscriber in list(subscribers):
            if subscriber.mode is Mode.LIVE and offset >= subscriber.next_offset:
                delivered += self._offer(subscriber, offset, event)
        return delivered

    def has_subscribers(self, number: PartitionIndex, key: bytes) -> bool:
        partition = self._partitions.get(number)
        return partition is not None and key in partition.subscribers

    def live_advanced(self, positions: Mapping[PartitionIndex, Offset]) -> None:
        """The live reader has delivered everything below these offsets."""
        for number, offset in positions.items():
            partition = self._partitions.get(number)
            if partition is not None and partition.cursor is not None:
                partition.cursor = max(partition.cursor, offset)

    def _offer(self, subscriber: Subscriber[E], offset: Offset, event: E) -> bool:
        if subscriber.deliver(event):
            subscriber.next_offset = Offset(offset + 1)
            return True
        if subscriber.mode is not Mode.GONE:
            subscriber.next_offset = offset
            subscriber.mode = Mode.BLOCKED
            self.spills += 1
        return False

    def unblock(self, subscriber: Subscriber[E]) -> None:
        """The subscriber's socket has room again."""
        if subscriber.mode is Mode.BLOCKED:
            subscriber.mode = Mode.BEHIND
            partition = self._partitions[subscriber.partition]
            if partition.cursor is None:
                subscriber.mode = Mode.OPENING
            else:
                partition.behind.add(subscriber)

    # -- catch-ups -----------------------------------------------------------------------------------

    def start_catch_ups(self) -> Mapping[PartitionIndex, Offset]:
        """Starts a catch-up for each partition that needs one. Returns the offsets to read from. Each
        serves all subscribers that are behind now."""
        started = {}
        for number, partition in self._partitions.items():
            if _needs_catch_up(partition):
                partition.catch_up_at = min(one.next_offset for one in partition.behind)
                for subscriber in partition.behind:
                    partition.catching_up.setdefault(subscriber.key, []).append(subscriber)
                partition.behind = set()
                started[number] = partition.catch_up_at
        return started

    def needs_catch_up(self) -> bool:
        return any(_needs_catch_up(partition) for partition in self._partitions.values())

    def deliver_catch_up(
        self, number: PartitionIndex, offset: Offset, key: bytes, event: E
    ) -> None:
        partition = self._partitions.get(number)
        if partition is None or partition.catch_up_at is None:
            return
        for subscriber in list(partition.catching_up.get(key, ())):
            if subscriber.mode is Mode.BEHIND and offset >= subscriber.next_offset:
                if self._offer(subscriber, offset, event):
                    subscriber.replayed += 1
                else:
                    self._leave_catch_up(partition, subscriber)

    def catch_up_has(self, number: PartitionIndex, key: bytes) -> bool:
        """Whether the running catch-up serves subscribers of `key`."""
        partition = self._partitions.get(number)
        return partition is not None and key in partition.catching_up

    def catch_up_advanced(self, number: PartitionIndex, offset: Offset) -> bool:
        """The catch-up has read everything below `offset`. Returns True if it is over: it reached the
        live cursor, or it has no subscriber left."""
        partition = self._partitions.get(number)
        if partition is None or partition.catch_up_at is None or partition.cursor is None:
            return True
        partition.catch_up_at = offset
        self._join_catch_up(partition, offset)
        if partition.catching_up and offset < partition.cursor:
            return False
        for subscribers in partition.catching_up.values():
            for subscriber in subscribers:
                subscriber.next_offset = max(subscriber.next_offset, offset)
                self._make_live(subscriber)
        partition.catching_up = {}
        partition.catch_up_at = None
        return True

    def _join_catch_up(self, partition: _FanOutPartition[E], offset: Offset) -> None:
        """Subscribers that wait for the next catch-up and need nothing before `offset` join this one."""
        for subscriber in [one for one in partition.behind if one.next_offset >= offset]:
            partition.behind.discard(subscriber)
            partition.catching_up.setdefault(subscriber.key, []).append(subscriber)

    def truncated(self, number: PartitionIndex, start: Offset) -> None:
        """The log starts at `start` now. Subscribers that need earlier records are refused."""
        partition = self._partitions.get(number)
        if partition is None:
            return
        partition.start = start
        partition.catch_up_at = None
        catching_up = [one for some in partition.catching_up.values() for one in some]
        partition.catching_up = {}
        for subscriber in [*catching_up, *partition.behind]:
            if subscriber.next_offset < start:
                partition.behind.discard(subscriber)
                subscriber.on_refused("the log no longer goes back so far")
            else:
                partition.behind.add(subscriber)

    def _leave_catch_up(self, partition: _FanOutPartition[E], subscriber: Subscriber[E]) -> None:
        partition.behind.discard(subscriber)
        if subscriber in partition.catching_up.get(subscriber.key, ()):
            _remove_from(partition.catching_up, subscriber)

    # -- positions and figures -----------------------------------------------------------------------

    def position_of(self, subscriber: Subscriber[E]) -> Position:
        """Everything up to this position has been delivered."""
        partition = self._partitions.get(subscriber.partition)
        offset = subscriber.next_offset
        if subscriber.mode is Mode.LIVE and partition is not None and partition.cursor is not None:
            offset = max(offset, partition.cursor)
        return Position(self.topic_id, subscriber.partition, Offset(offset - 1))

    def end_of(self, number: PartitionIndex) -> Position:
        """The position of the live reader."""
        partition = self._partitions.get(number)
        cursor = None if partition is None else partition.cursor
        return Position(self.topic_id, number, Offset((cursor or Offset(0)) - 1))

    def partitions(self) -> Iterable[PartitionIndex]:
        return self._partitions.keys()

    def behind_count(self) -> int:
        return sum(
            subscriber.mode in (Mode.BEHIND, Mode.BLOCKED)
            for partition in self._partitions.values()
            for subscribers in partition.subscribers.values()
            for subscriber in subscribers
        )


def _needs_catch_up(partition: _FanOutPartition[E]) -> bool:
    return bool(partition.behind) and partition.catch_up_at is None and partition.cursor is not None


def _remove_from(table: dict[bytes, list[Subscriber[E]]], subscriber: Subscriber[E]) -> None:
    subscribers = table[subscriber.key]
    subscribers.remove(subscriber)
    if not subscribers:
        del table[subscriber.key]
