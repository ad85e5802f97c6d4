"""Which records of one partition are done, when they finish in any order.

Offsets are read in ascending order. Each is then open until it is finished, or deferred: if too many calls
of a key wait, the rest of them are not held but stay in the log, and are read again when the key has room.
What is open is bounded, so that it always fits into the metadata of a commit (`offset_metadata`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kafkaesque.client.ports import CommitPoint
from kafkaesque.model.errors import check
from kafkaesque.model.ids import Offset
from kafkaesque.tasks.rules.offset_metadata import (
    KEY_BYTES,
    KEYS_MAX,
    SINGLES_BYTES_MAX,
    WINDOW_OFFSETS_MAX,
    OpenOffsets,
    decode_metadata,
    digest_of,
    encode_metadata,
    list_bytes,
    merge_keys,
)
from kafkaesque.tasks.rules.queues import MinSet

_SINGLES_PER_KEY_MAX = KEY_BYTES // 2 + 1
"""More open offsets of one key than this are cheaper to encode as a key."""


@dataclass(slots=True)
class _OpenOfKey:
    """The open offsets of one key."""

    late: list[int] = field(default_factory=list)
    """Offsets after which nothing of the key is finished; ascending."""
    early: set[int] = field(default_factory=set)
    """The others: calls that have ended and whose follow-up records are being written."""

    def finish(self, offset: int) -> None:
        while self.late and self.late[0] <= offset:
            self.early.add(self.late.pop(0))
        self.early.discard(offset)

    @property
    def singles(self) -> int:
        """The number of single offsets that take the same space in a commit."""
        return len(self.early) + min(len(self.late), _SINGLES_PER_KEY_MAX)


@dataclass(slots=True)
class DeferredKey:
    """A key whose calls stay in the log for now."""

    start: int
    """No call of the key from this offset on is held."""
    count: int = 0
    """Calls that were read and deferred."""
    is_rereading: bool = False
    """They are being read again; the next one found is the next to run."""


class OffsetTracker:
    """The progress of one partition during one assignment."""

    def __init__(self, point: CommitPoint | None = None) -> None:
        self._open: MinSet[int] = MinSet()
        self._keys: dict[bytes, _OpenOfKey] = {}
        self._singles = 0
        """The number of single offsets that take as much of a commit as all that is open."""
        self.deferred: dict[bytes, DeferredKey] = {}
        self._next = -1 if point is None else int(point.offset)
        self._restored = _nothing_restored()
        if point is not None:
            self._restored = decode_metadata(point.offset, point.metadata)
        self._committed = point
        self._point: CommitPoint | None = None
        """The cached commit point; None after a change."""

    # -- read, open, finished ------------------------------------------------------------------------

    def read(self, offset: Offset, key: bytes | None = None) -> bool:
        """Returns whether the record must run: False if a previous owner of the partition finished it."""
        self._point = None
        if offset < self._next:
            # The topic was deleted and created again, so the group's offsets are worthless.
            self._reset()
        self._next = offset + 1
        restored = self._restored
        if offset >= restored.end:
            return True
        is_open = restored.is_open(offset, key)
        restored.opened.discard(offset)
        if self._next >= restored.end:
            self._restored = _nothing_restored()
        if not is_open:
            self._finish_of_key(offset, key)
        return is_open

    def _reset(self) -> None:
        self._open = MinSet()
        self._keys.clear()
        self._singles = 0
        self.deferred.clear()
        self._restored = _nothing_restored()

    def start(self, offset: Offset, key: bytes | None = None) -> None:
        """The record is held, and open until `finish`."""
        self._point = None
        self._open.add(offset)
        if key is None:
            self._singles += 1
            return
        of_key = self._keys.setdefault(key, _OpenOfKey())
        self._singles -= of_key.singles
        of_key.late.append(offset)
        self._singles += of_key.singles

    def finish(self, offset: Offset, key: bytes | None = None) -> None:
        if offset not in self._open:
            return
        self._point = None
        self._open.discard(offset)
        if key is None:
            self._singles -= 1
        else:
            self._finish_of_key(offset, key)

    def _finish_of_key(self, offset: Offset, key: bytes | None) -> None:
        of_key = None if key is None else self._keys.get(key)
        if key is None or of_key is None:
            return
        self._singles -= of_key.singles
        of_key.finish(offset)
        self._singles += of_key.singles
        if not of_key.late and not of_key.early:
            del self._keys[key]

    # -- deferred records ----------------------------------------------------------------------------

    def may_defer(self, offset: Offset, key: bytes) -> bool:
        """Whether the record that was just read may be deferred."""
        if self._next < self._restored.end:
            # A previous owner must have finished nothing of the key after this offset.
            return self._restored.keys.get(digest_of(key), self._next) <= offset
        return key in self.deferred or len(self.deferred) < KEYS_MAX

    def defer(self, offset: Offset, key: bytes) -> None:
        """The record was read and is not held, and neither is any later one of its key."""
        self._point = None
        self.deferred.setdefault(key, DeferredKey(int(offset))).count += 1

    def resume(self, offset: Offset, key: bytes) -> None:
        """A deferred record was read again and is held from now on."""
        deferred = self.deferred[key]
        check(deferred.start <= offset < self._next, "only a deferred record is resumed")
        self.start(offset, key)
        deferred.start = offset + 1
        deferred.count -= 1
        if deferred.count == 0:
            del self.deferred[key]

    def start_reread(self) -> None:
        """The deferred records are being read again, from the first of them on."""
        for deferred in self.deferred.values():
            deferred.is_rereading = True

    @property
    def is_rereading(self) -> bool:
        return any(deferred.is_rereading for deferred in self.deferred.values())

    def end_reread(self, log_start: int) -> None:
        """Everything was read again. Retention deleted the records that were not found."""
        for key, deferred in list(self.deferred.items()):
            if deferred.is_rereading and deferred.start < log_start:
                self._point = None
                del self.deferred[key]
            deferred.is_rereading = False

    @property
    def deferred_count(self) -> int:
        return sum(deferred.count for deferred in self.deferred.values())

    # -- what to commit, and how much more fits --------------------------------------------------------

    @property
    def next_offset(self) -> int:
        return self._next

    @property
    def lowest_open(self) -> Offset | None:
        first = self._open.minimum
        return None if first is None else Offset(first)

    @property
    def window(self) -> int:
        """The number of offsets that the metadata of a commit must cover."""
        return self._end - self._base if self._next >= 0 else 0

    @property
    def room(self) -> int:
        """The number of records that may be read and all stay open, and still fit in a commit."""
        window, restored = self.window, self._restored
        deferred = max(0, len(self.deferred) - KEYS_MAX)
        singles = self._singles + len(restored.opened)
        singles += _SINGLES_PER_KEY_MAX * (deferred + len(restored.keys))
        by_list = (SINGLES_BYTES_MAX - list_bytes(singles, window)) // 2
        by_bitmap = WINDOW_OFFSETS_MAX - window - 8 * KEY_BYTES * deferred
        # Records up to the restored end were in an earlier commit, so they fit.
        return max(by_list, by_bitmap, restored.end - self._next)

    @property
    def _end(self) -> int:
        return max(self._next, self._restored.end)

    @property
    def _base(self) -> int:
        """The lowest offset that is not done."""
        candidates = [self._end]
        if self._open.minimum is not None:
            candidates.append(self._open.minimum)
        candidates += [deferred.start for deferred in self.deferred.values()]
        candidates += self._restored.opened
        candidates += self._unread_keys().values()
        return min(candidates)

    def _unread_keys(self) -> dict[bytes, int]:
        return {digest: max(at, self._next) for digest, at in self._restored.keys.items()}

    def _open_offsets(self) -> OpenOffsets:
        base, end = self._base, self._end
        deferred = {key: one.start for key, one in self.deferred.items()}
        opened = set(self._open)
        if end - base > WINDOW_OFFSETS_MAX:
            for key, of_key in self._keys.items():
                if key in deferred or len(of_key.late) > _SINGLES_PER_KEY_MAX:
                    deferred[key] = of_key.late[0] if of_key.late else deferred[key]
                    opened.difference_update(of_key.late)
        own = {digest_of(key): at for key, at in deferred.items()}
        keys = merge_keys((own, self._unread_keys()))
        return OpenOffsets(base, end, opened | self._restored.opened, keys)

    def commit_point(self) -> CommitPoint | None:
        """What to commit; None if nothing changed since the last commit."""
        if self._next < 0:
            return None
        if self._point is None:
            opened = self._open_offsets()
            self._point = CommitPoint(Offset(opened.base), encode_metadata(opened))
        return None if self._point == self._committed else self._point

    def mark_committed(self, point: CommitPoint) -> None:
        self._committed = point


def _nothing_restored() -> OpenOffsets:
    return OpenOffsets(-1, -1)
