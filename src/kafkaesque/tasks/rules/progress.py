"""How far one partition is done when its records end in any order. Pure.

Offsets are read in ascending order. Each is then open until it is finished, or left in the log: the
calls of a key that has too many waiting are not held at all, but read again when the key is free
(`closed` keys). What is open is bounded so that it always fits into a commit (`gaps`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kafkaesque.client.ports import CommitPoint
from kafkaesque.model.errors import check
from kafkaesque.model.ids import Offset
from kafkaesque.tasks.rules.gaps import (
    KEY_BYTES,
    KEYS_MAX,
    SINGLES_BYTES_MAX,
    WINDOW_OFFSETS_MAX,
    Gaps,
    digest_of,
    list_bytes,
    merged,
    pack_gaps,
    unpack_gaps,
)
from kafkaesque.tasks.rules.lowest import Lowest

_SINGLES_PER_KEY_MAX = KEY_BYTES // 2 + 1
"""More open offsets of one key are cheaper to say as a key."""


@dataclass(slots=True)
class _KeyOpen:
    """The open offsets of one key."""

    late: list[int] = field(default_factory=list)
    """Those behind which nothing of the key is finished; ascending."""
    early: set[int] = field(default_factory=set)
    """The others: calls that have ended, and whose consequences are on their way to the log."""

    def finish(self, offset: int) -> None:
        while self.late and self.late[0] <= offset:
            self.early.add(self.late.pop(0))
        self.early.discard(offset)

    @property
    def singles(self) -> int:
        """As many single offsets take as much of a commit."""
        return len(self.early) + min(len(self.late), _SINGLES_PER_KEY_MAX)


@dataclass(slots=True)
class Closed:
    """A key whose calls are left in the log."""

    start: int
    """None of its calls from here on is held."""
    count: int = 0
    """Calls that were left, as far as they were read."""
    is_sought: bool = False
    """They are being read again; the next one that is found is the next to do."""


class Progress:
    """One partition."""

    def __init__(self, point: CommitPoint | None = None) -> None:
        self._open: Lowest[int] = Lowest()
        self._keys: dict[bytes, _KeyOpen] = {}
        self._singles = 0
        """Of all open offsets: how many single ones would take as much of a commit."""
        self.closed: dict[bytes, Closed] = {}
        self._next = -1 if point is None else int(point.offset)
        self._restored = _nothing_restored()
        if point is not None:
            self._restored = unpack_gaps(point.offset, point.metadata)
        self._committed = point
        self._point: CommitPoint | None = None
        """What to commit, until something changes."""

    # -- read, open, finished ------------------------------------------------------------------------

    def read(self, offset: Offset, key: bytes | None = None) -> bool:
        """Whether it is to be done: False if an earlier reader of the partition has finished it."""
        self._point = None
        if offset < self._next:
            # The topic was made anew, and the group's offsets with it are worth nothing.
            self._begin_anew()
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

    def _begin_anew(self) -> None:
        self._open = Lowest()
        self._keys.clear()
        self._singles = 0
        self.closed.clear()
        self._restored = _nothing_restored()

    def begin(self, offset: Offset, key: bytes | None = None) -> None:
        """It is held until `finish`."""
        self._point = None
        self._open.add(offset)
        if key is None:
            self._singles += 1
            return
        of_key = self._keys.setdefault(key, _KeyOpen())
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

    # -- left in the log -----------------------------------------------------------------------------

    def may_close(self, offset: Offset, key: bytes) -> bool:
        """Whether `leave` may be said of it, which has just been read."""
        if self._next < self._restored.end:
            # Nothing of the key behind it may have been finished by an earlier reader.
            return self._restored.keys.get(digest_of(key), self._next) <= offset
        return key in self.closed or len(self.closed) < KEYS_MAX

    def leave(self, offset: Offset, key: bytes) -> None:
        """It was read and is not held, nor is anything of its key behind it."""
        self._point = None
        self.closed.setdefault(key, Closed(int(offset))).count += 1

    def take_back(self, offset: Offset, key: bytes) -> None:
        """It was left, is read again, and is held from now on."""
        closed = self.closed[key]
        check(closed.start <= offset < self._next, "only what was left is taken back")
        self.begin(offset, key)
        closed.start = offset + 1
        closed.count -= 1
        if closed.count == 0:
            del self.closed[key]

    def seek(self) -> None:
        """What was left is being read again from the first of it on."""
        for closed in self.closed.values():
            closed.is_sought = True

    @property
    def is_sought(self) -> bool:
        return any(closed.is_sought for closed in self.closed.values())

    def end_search(self, log_start: int) -> None:
        """All was read again. What was not found was deleted with the beginning of the log."""
        for key, closed in list(self.closed.items()):
            if closed.is_sought and closed.start < log_start:
                self._point = None
                del self.closed[key]
            closed.is_sought = False

    @property
    def left(self) -> int:
        return sum(closed.count for closed in self.closed.values())

    # -- what to commit, and how much more fits --------------------------------------------------------

    @property
    def next_offset(self) -> int:
        return self._next

    @property
    def lowest_open(self) -> Offset | None:
        first = self._open.first
        return None if first is None else Offset(first)

    @property
    def window(self) -> int:
        """Offsets that the metadata of a commit would have to span."""
        return self._end - self._base if self._next >= 0 else 0

    @property
    def room(self) -> int:
        """Records that may be read, and all stay open, so that a commit still can say so."""
        window, restored = self.window, self._restored
        closed = max(0, len(self.closed) - KEYS_MAX)
        singles = self._singles + len(restored.opened)
        singles += _SINGLES_PER_KEY_MAX * (closed + len(restored.keys))
        by_list = (SINGLES_BYTES_MAX - list_bytes(singles, window)) // 2
        by_bitmap = WINDOW_OFFSETS_MAX - window - 8 * KEY_BYTES * closed
        # What is read again was said before, and fits.
        return max(by_list, by_bitmap, restored.end - self._next)

    @property
    def _end(self) -> int:
        return max(self._next, self._restored.end)

    @property
    def _base(self) -> int:
        """The lowest that is not done."""
        candidates = [self._end]
        if self._open.first is not None:
            candidates.append(self._open.first)
        candidates += [closed.start for closed in self.closed.values()]
        candidates += self._restored.opened
        candidates += self._unread_keys().values()
        return min(candidates)

    def _unread_keys(self) -> dict[bytes, int]:
        return {digest: max(at, self._next) for digest, at in self._restored.keys.items()}

    def _gaps(self) -> Gaps:
        base, end = self._base, self._end
        closed = {key: one.start for key, one in self.closed.items()}
        opened = set(self._open)
        if end - base > WINDOW_OFFSETS_MAX:
            for key, of_key in self._keys.items():
                if key in closed or len(of_key.late) > _SINGLES_PER_KEY_MAX:
                    closed[key] = of_key.late[0] if of_key.late else closed[key]
                    opened.difference_update(of_key.late)
        own = {digest_of(key): at for key, at in closed.items()}
        return Gaps(base, end, opened | self._restored.opened, merged((own, self._unread_keys())))

    def point(self) -> CommitPoint | None:
        """What to commit; None if nothing changed since `committed`."""
        if self._next < 0:
            return None
        if self._point is None:
            gaps = self._gaps()
            self._point = CommitPoint(Offset(gaps.base), pack_gaps(gaps))
        return None if self._point == self._committed else self._point

    def committed(self, point: CommitPoint) -> None:
        self._committed = point


def _nothing_restored() -> Gaps:
    return Gaps(-1, -1)
