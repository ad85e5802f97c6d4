"""LogReader of the in-memory log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kafkaesque.client.memory_store import MemoryGroup, MemoryStore
from kafkaesque.client.ports import (
    Assignment,
    CommitPoint,
    LogError,
    OffsetGone,
    Received,
    Start,
    Subscription,
)
from kafkaesque.model.errors import check
from kafkaesque.model.ids import Offset, TopicPartition


class MemoryReader:
    """See LogReader. A rebalance happens in `read`, as with librdkafka, partition by partition."""

    def __init__(self, store: MemoryStore, what: Subscription | Assignment) -> None:
        self._store = store
        self._what = what
        self._next: dict[TopicPartition, Offset] = {}
        self._paused: set[TopicPartition] = set()
        self._expelled = False
        self._closed = False
        if isinstance(what, Assignment):
            self._next = {place: Offset(max(0, at)) for place, at in what.offsets.items()}
        else:
            self._group.members.append(self)

    @property
    def _subscription(self) -> Subscription:
        if not isinstance(self._what, Subscription):
            raise LogError("only a reader with a subscription belongs to a consumer group")
        return self._what

    @property
    def _group(self) -> MemoryGroup:
        return self._store.group(self._subscription.group)

    async def read(self, count_max: int = 500, wait_s: float = 1.0) -> Sequence[Received]:
        before = dict(self._next)
        records = await self._take(count_max)
        moved = isinstance(self._what, Assignment) and self._next != before
        if not records and not moved and wait_s > 0:
            await self._store.wait_for_growth(wait_s)
            records = await self._take(count_max)
        return records

    async def _take(self, count_max: int) -> list[Received]:
        if isinstance(self._what, Subscription):
            await self._rebalance(self._what)
        taken: list[Received] = []
        for place in [place for place in self._next if place not in self._paused]:
            start = self._store.span(place).start
            if self._next[place] < start:
                self._skip_to(place, start)
            records = self._store.records_from(place, self._next[place], count_max - len(taken))
            taken += records
            self._move(place, records, all_read=len(taken) < count_max)
        return taken

    def _move(self, place: TopicPartition, records: Sequence[Received], *, all_read: bool) -> None:
        """Moves past transaction markers at the end too, but only without a group: with librdkafka, only
        such a reader learns of the end of a partition."""
        if records:
            self._next[place] = Offset(records[-1].offset + 1)
        if all_read and isinstance(self._what, Assignment):
            self._next[place] = max(self._next[place], self._store.span(place).end)

    def _skip_to(self, place: TopicPartition, start: Offset) -> None:
        if isinstance(self._what, Assignment) and self._what.strict:
            raise OffsetGone(f"{place} begins at {start}, {self._next[place]} is gone")
        self._next[place] = start

    # -- the group ---------------------------------------------------------------------------------

    async def _rebalance(self, what: Subscription) -> None:
        group = self._group
        if self._expelled:
            self._expelled = False
            lost = self._forget(frozenset(self._next))
            group.members.append(self)
            if what.listener is not None and lost:
                await what.listener.lost(lost)
        wanted = group.share(self, self._store.places(what.topics))
        await self._revoke(frozenset(self._next) - wanted)
        free = frozenset(place for place in wanted if place not in group.owners)
        for place in free:
            group.owners[place] = self
            self._next[place] = self._begin(what, place)
        if what.listener is not None and free:
            await what.listener.assigned(free)

    def _begin(self, what: Subscription, place: TopicPartition) -> Offset:
        point = self._group.committed.get(place)
        if point is not None:
            return point.offset
        span = self._store.span(place)
        return span.start if what.start is Start.BEGINNING else span.end

    async def _revoke(self, places: frozenset[TopicPartition]) -> None:
        listener = self._subscription.listener
        if listener is not None and places:
            await listener.revoked(places)
        for place in self._forget(places):
            self._group.owners.pop(place, None)

    def _forget(self, places: frozenset[TopicPartition]) -> frozenset[TopicPartition]:
        self._paused -= places
        for place in places:
            self._next.pop(place, None)
        return places

    def expel(self) -> None:
        """For tests: removes this member from its group. It finds out at its next `read`."""
        self._group.leave(self)
        self._expelled = True

    async def positions(self) -> Mapping[TopicPartition, Offset]:
        return dict(self._next)

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._next)

    async def commit(self, points: Mapping[TopicPartition, CommitPoint] | None = None) -> None:
        self.commit_points(self.points() if points is None else points)

    def points(self) -> Mapping[TopicPartition, CommitPoint]:
        return {place: CommitPoint(offset) for place, offset in self._next.items()}

    def commit_points(self, points: Mapping[TopicPartition, CommitPoint]) -> None:
        group = self._group
        if self._expelled:
            raise LogError("this member was removed from its group")
        group.committed.update(points)

    async def committed(
        self, places: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, CommitPoint]:
        committed = self._group.committed
        return {place: committed[place] for place in places if place in committed}

    # -- changing what is read ---------------------------------------------------------------------

    async def seek(self, place: TopicPartition, offset: Offset) -> None:
        check(place in self._next, f"seek of {place}, which is not assigned to this reader")
        self._next[place] = offset

    async def pause(self, places: Iterable[TopicPartition]) -> None:
        self._paused.update(places)

    async def resume(self, places: Iterable[TopicPartition]) -> None:
        self._paused.difference_update(places)

    async def add(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        self._check_assignment()
        check(self._next.keys().isdisjoint(offsets), "added partitions must not be assigned yet")
        self._next |= offsets

    async def drop(self, places: Iterable[TopicPartition]) -> None:
        self._check_assignment()
        self._forget(frozenset(places))

    def _check_assignment(self) -> None:
        if not isinstance(self._what, Assignment):
            raise LogError("the consumer group decides what a reader with a subscription reads")

    async def close(self) -> None:
        if not self._closed and isinstance(self._what, Subscription):
            try:
                if not self._expelled:
                    await self._revoke(frozenset(self._next))
            finally:
                # Also if the listener raises: this member will not poll again.
                self._group.leave(self)
        self._closed = True
