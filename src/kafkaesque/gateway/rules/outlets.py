"""Who gets which record: the rules of live delivery, catching up and spilling, for one topic.

One live reader serves everybody; each *outlet* (a connection's inbox, a connection in a room) says which
key it wants and keeps the next offset that it has not had. Three modes:

- LIVE: records of the live reader are handed over as they come.
- BEHIND: something was missed (a resume, or the socket was full). The log has it: a *sweep* reads the
  partition again from the lowest offset that is missed and serves all who are behind. When it meets the
  live cursor its outlets are LIVE; no record is in between, since both move on one thread.
- BLOCKED: behind, and the socket is still full. Nothing is kept for it but the offset.

An outlet gets a record iff its key fits and offset >= next_offset; next_offset only grows. So each gets
every record once and in order, whatever the readers do.
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


class From(Enum):
    """Where an outlet begins that names no position."""

    NOW = "now"
    EARLIEST = "earliest"


@dataclass(slots=True, eq=False)
class Outlet(Generic[E]):
    """`take` hands over an event and says whether there was room; `joined` hears that what was missed
    has been sent, with how many; `refused` that the position cannot be resumed from."""

    key: bytes
    partition: PartitionIndex
    wanted: Position | From
    take: Callable[[E], bool]
    joined: Callable[[int], None]
    refused: Callable[[str], None]
    mode: Mode = Mode.OPENING
    next_offset: Offset = field(default=Offset(-1))
    replayed: int = 0
    announced: bool = False
    """Whether `joined` has been told; a later spill and return is not."""


@dataclass(slots=True)
class _Track(Generic[E]):
    """One partition while it is read. Live records below `cursor` have been handed out."""

    cursor: Offset | None = None
    start: Offset = field(default=Offset(0))
    outlets: dict[bytes, list[Outlet[E]]] = field(default_factory=dict)
    count: int = 0
    sweep_at: Offset | None = None
    """Next offset of the sweep under way."""
    sweeping: dict[bytes, list[Outlet[E]]] = field(default_factory=dict)
    behind: set[Outlet[E]] = field(default_factory=set)
    """Wait for the next sweep."""
    idle_since_s: float = 0.0


class Board(Generic[E]):
    """All outlets of one topic, by partition."""

    def __init__(self, topic_id: TopicId) -> None:
        self.topic_id = topic_id
        self._tracks: dict[PartitionIndex, _Track[E]] = {}
        self.spills = 0

    # -- coming and going --------------------------------------------------------------------------

    def add(self, outlet: Outlet[E]) -> None:
        track = self._tracks.setdefault(outlet.partition, _Track())
        track.outlets.setdefault(outlet.key, []).append(outlet)
        track.count += 1
        if track.cursor is not None:
            self._settle(track, outlet)

    def remove(self, outlet: Outlet[E], now_s: float) -> None:
        track = self._tracks.get(outlet.partition)
        if track is None or outlet not in track.outlets.get(outlet.key, ()):
            return
        _take_out(track.outlets, outlet)
        self._stop_sweeping(track, outlet)
        track.count -= 1
        track.idle_since_s = now_s
        outlet.mode = Mode.GONE

    def _is_beyond(self, outlet: Outlet[E]) -> bool:
        return (
            isinstance(outlet.wanted, Position)
            and outlet.wanted.topic == self.topic_id
            and outlet.wanted.partition == outlet.partition
            and outlet.wanted.offset > self.end_of(outlet.partition).offset
        )

    def is_doubtful(self, outlet: Outlet[E]) -> bool:
        """It wants to go on from beyond the live cursor. Another gateway may have been ahead of us, or
        the position is made up: the log's end must be looked at."""
        track = self._tracks.get(outlet.partition)
        return track is not None and track.cursor is not None and self._is_beyond(outlet)

    def unread(self) -> list[PartitionIndex]:
        """Partitions that somebody wants and that are not read yet."""
        return [number for number, track in self._tracks.items() if track.cursor is None]

    def open(self, partition: PartitionIndex, span: Span) -> None:
        """The live reader begins at the end of `span`."""
        track = self._tracks[partition]
        check(track.cursor is None, "a partition is opened once")
        track.cursor, track.start = span.end, span.start
        for outlets in list(track.outlets.values()):
            for outlet in list(outlets):
                if self._is_beyond(outlet):
                    outlet.refused("the position lies beyond the end of the log")
                else:
                    self._settle(track, outlet)

    def idle(self, now_s: float, linger_s: float) -> list[PartitionIndex]:
        """Partitions that nobody has wanted for a while. They are forgotten with this."""
        idle = [
            number
            for number, track in self._tracks.items()
            if track.count == 0 and track.cursor is not None
            and track.sweep_at is None and now_s - track.idle_since_s >= linger_s
        ]  # fmt: skip
        for number in idle:
            del self._tracks[number]
        return idle

    def forget_all(self) -> None:
        """The readers are made anew: everybody is behind from where they were."""
        for track in self._tracks.values():
            for outlets in track.outlets.values():
                for outlet in outlets:
                    if outlet.next_offset >= 0:
                        outlet.wanted = self.position_of(outlet)
                    if outlet.mode is not Mode.BLOCKED:
                        outlet.mode = Mode.OPENING
            track.cursor = None
            track.sweep_at = None
            track.sweeping, track.behind = {}, set()

    def _settle(self, track: _Track[E], outlet: Outlet[E]) -> None:
        check(track.cursor is not None, "an outlet is settled once its partition is read")
        cursor = track.cursor or Offset(0)
        if outlet.mode is Mode.BLOCKED:
            return
        if outlet.wanted is From.NOW:
            outlet.next_offset = cursor
        elif outlet.wanted is From.EARLIEST:
            outlet.next_offset = track.start
        elif isinstance(outlet.wanted, Position):
            reason = self._refusal(track, outlet.wanted, outlet.partition)
            if reason is not None:
                outlet.refused(reason)
                return
            outlet.next_offset = Offset(outlet.wanted.offset + 1)
        if outlet.next_offset >= cursor:
            self._join(outlet)
        else:
            outlet.mode = Mode.BEHIND
            track.behind.add(outlet)

    def _refusal(self, track: _Track[E], wanted: Position, partition: PartitionIndex) -> str | None:
        if wanted.topic != self.topic_id:
            return "the log was made anew"
        if wanted.partition != partition:
            return "the position is of another partition"
        if wanted.offset + 1 < track.start:
            return "the log no longer goes back so far"
        return None

    def _join(self, outlet: Outlet[E]) -> None:
        outlet.mode = Mode.LIVE
        if not outlet.announced:
            outlet.announced = True
            outlet.joined(outlet.replayed)

    # -- the live reader ---------------------------------------------------------------------------

    def live(self, partition: PartitionIndex, offset: Offset, key: bytes, event: E) -> int:
        """Hand a record to those who are LIVE; how many took it."""
        track = self._tracks.get(partition)
        outlets = None if track is None else track.outlets.get(key)
        if not outlets:
            return 0
        taken = 0
        for outlet in list(outlets):
            if outlet.mode is Mode.LIVE and offset >= outlet.next_offset:
                taken += self._offer(outlet, offset, event)
        return taken

    def wants(self, partition: PartitionIndex, key: bytes) -> bool:
        track = self._tracks.get(partition)
        return track is not None and key in track.outlets

    def moved(self, positions: Mapping[PartitionIndex, Offset]) -> None:
        """The live reader has handed out everything below these."""
        for partition, offset in positions.items():
            track = self._tracks.get(partition)
            if track is not None and track.cursor is not None:
                track.cursor = max(track.cursor, offset)

    def _offer(self, outlet: Outlet[E], offset: Offset, event: E) -> bool:
        if outlet.take(event):
            outlet.next_offset = Offset(offset + 1)
            return True
        if outlet.mode is not Mode.GONE:
            outlet.next_offset = offset
            outlet.mode = Mode.BLOCKED
            self.spills += 1
        return False

    def ready(self, outlet: Outlet[E]) -> None:
        """There is room again."""
        if outlet.mode is Mode.BLOCKED:
            outlet.mode = Mode.BEHIND
            track = self._tracks[outlet.partition]
            if track.cursor is None:
                outlet.mode = Mode.OPENING
            else:
                track.behind.add(outlet)

    # -- sweeps ------------------------------------------------------------------------------------

    def sweeps_due(self) -> Mapping[PartitionIndex, Offset]:
        """Sweeps to begin, with where: each serves all who are behind now."""
        due = {}
        for partition, track in self._tracks.items():
            if track.behind and track.sweep_at is None and track.cursor is not None:
                track.sweep_at = min(outlet.next_offset for outlet in track.behind)
                for outlet in track.behind:
                    track.sweeping.setdefault(outlet.key, []).append(outlet)
                track.behind = set()
                due[partition] = track.sweep_at
        return due

    def sweeps_due_any(self) -> bool:
        return any(
            track.behind and track.sweep_at is None and track.cursor is not None
            for track in self._tracks.values()
        )

    def swept(self, partition: PartitionIndex, offset: Offset, key: bytes, event: E) -> None:
        track = self._tracks.get(partition)
        if track is None or track.sweep_at is None:
            return
        for outlet in list(track.sweeping.get(key, ())):
            if outlet.mode is Mode.BEHIND and offset >= outlet.next_offset:
                if self._offer(outlet, offset, event):
                    outlet.replayed += 1
                else:
                    self._stop_sweeping(track, outlet)

    def sweeps(self, partition: PartitionIndex, key: bytes) -> bool:
        track = self._tracks.get(partition)
        return track is not None and key in track.sweeping

    def sweep_moved(self, partition: PartitionIndex, offset: Offset) -> bool:
        """The sweep has read everything below `offset`. True when it is over: it met the live cursor,
        or nobody is left in it."""
        track = self._tracks.get(partition)
        if track is None or track.sweep_at is None or track.cursor is None:
            return True
        track.sweep_at = offset
        self._take_aboard(track, offset)
        if track.sweeping and offset < track.cursor:
            return False
        for outlets in track.sweeping.values():
            for outlet in outlets:
                outlet.next_offset = max(outlet.next_offset, offset)
                self._join(outlet)
        track.sweeping = {}
        track.sweep_at = None
        return True

    def _take_aboard(self, track: _Track[E], offset: Offset) -> None:
        """Who waits for the next sweep, and misses nothing by joining this one, joins this one."""
        for outlet in [outlet for outlet in track.behind if outlet.next_offset >= offset]:
            track.behind.discard(outlet)
            track.sweeping.setdefault(outlet.key, []).append(outlet)

    def lost(self, partition: PartitionIndex, start: Offset) -> None:
        """The log begins at `start` now: those who need more than that cannot be served."""
        track = self._tracks.get(partition)
        if track is None:
            return
        track.start = start
        track.sweep_at = None
        aboard = [outlet for outlets in track.sweeping.values() for outlet in outlets]
        track.sweeping = {}
        for outlet in [*aboard, *track.behind]:
            if outlet.next_offset < start:
                track.behind.discard(outlet)
                outlet.refused("the log no longer goes back so far")
            else:
                track.behind.add(outlet)

    def _stop_sweeping(self, track: _Track[E], outlet: Outlet[E]) -> None:
        track.behind.discard(outlet)
        if outlet in track.sweeping.get(outlet.key, ()):
            _take_out(track.sweeping, outlet)

    # -- what can be seen --------------------------------------------------------------------------

    def position_of(self, outlet: Outlet[E]) -> Position:
        """Everything up to here has been handed over."""
        track = self._tracks.get(outlet.partition)
        offset = outlet.next_offset
        if outlet.mode is Mode.LIVE and track is not None and track.cursor is not None:
            offset = max(offset, track.cursor)
        return Position(self.topic_id, outlet.partition, Offset(offset - 1))

    def end_of(self, partition: PartitionIndex) -> Position:
        """Where live reading of a partition stands."""
        track = self._tracks.get(partition)
        cursor = track.cursor if track is not None and track.cursor is not None else Offset(0)
        return Position(self.topic_id, partition, Offset(cursor - 1))

    def partitions(self) -> Iterable[PartitionIndex]:
        return self._tracks.keys()

    def behind_count(self) -> int:
        return sum(
            outlet.mode in (Mode.BEHIND, Mode.BLOCKED)
            for track in self._tracks.values()
            for outlets in track.outlets.values()
            for outlet in outlets
        )


def _take_out(table: dict[bytes, list[Outlet[E]]], outlet: Outlet[E]) -> None:
    outlets = table[outlet.key]
    outlets.remove(outlet)
    if not outlets:
        del table[outlet.key]
