"""One file of the simulated disk: the page cache, the durable image, and the difference."""

from __future__ import annotations

from random import Random
from typing import Final, NamedTuple

PAGE_SIZE_BYTES: Final = 512
"""Small, so that small files have several: what a disk writes as a whole is a sector."""


class Change(NamedTuple):
    """A write, or with `data` None a cut to `position` bytes."""

    position: int
    data: bytes | None


class Inode:
    """`data` is what readers see; `durable` what a crash leaves for certain."""

    __slots__ = ("data", "durable", "modified_ms", "pending")

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = bytearray()
        self.pending: list[Change] = []
        self.modified_ms = 0

    def write(self, data: bytes, position: int, now_ms: int) -> None:
        self._change(Change(position, data), now_ms)

    def truncate(self, size_bytes: int, now_ms: int) -> None:
        self._change(Change(size_bytes, None), now_ms)

    def _change(self, change: Change, now_ms: int) -> None:
        self.pending.append(change)
        self.modified_ms = now_ms
        _apply(self.data, change)

    def sync(self) -> None:
        for change in self.pending:
            _apply(self.durable, change)
        self.pending.clear()

    def fail_sync(self, random: Random) -> None:
        """Some of it got through; the rest is taken for clean and never will."""
        self._keep_some(random)
        self.pending.clear()

    def crash(self, random: Random) -> None:
        self._keep_some(random)
        self.pending.clear()
        self.data = bytearray(self.durable)

    def is_durable(self, start: int, end: int) -> bool:
        """Whether the bytes [start, end) would be found after any crash."""
        if end > len(self.durable):
            return False
        for change in self.pending:
            if change.data is None:
                if change.position < end:
                    return False
            elif change.position < end and change.position + len(change.data) > start:
                return False
        return True

    def flip_bit(self, position: int, bit: int) -> None:
        """Damage that no write caused, both in the cache and on the disk."""
        for image in (self.data, self.durable):
            if position < len(image):
                image[position] ^= 1 << bit

    def _keep_some(self, random: Random) -> None:
        """Nothing, a prefix whose last write is torn, or any pages behind the last cut."""
        pending = self.pending
        how = random.randrange(3)
        if not pending or how == 0:
            return
        if how == 1:
            count = random.randrange(len(pending))
            for change in pending[:count]:
                _apply(self.durable, change)
            self._tear(pending[count], random)
            return
        cuts = [number for number, change in enumerate(pending) if change.data is None]
        last_cut = cuts[-1] + 1 if cuts else 0
        for change in pending[:last_cut]:
            _apply(self.durable, change)
        for position, data in pending[last_cut:]:
            for page in _pages(position, data or b""):
                if random.randrange(2):
                    _apply(self.durable, page)

    def _tear(self, change: Change, random: Random) -> None:
        """A part of a write. What was there before is replaced by whole sectors only."""
        position, data = change
        if data is None:
            return
        if position >= len(self.durable):
            _apply(self.durable, Change(position, data[: random.randrange(len(data) + 1)]))
            return
        pages = _pages(position, data)
        for page in pages[: random.randrange(len(pages) + 1)]:
            _apply(self.durable, page)


def _apply(image: bytearray, change: Change) -> None:
    position, data = change
    if data is None:
        if position < len(image):
            del image[position:]
        else:
            image.extend(bytes(position - len(image)))
        return
    if position > len(image):
        image.extend(bytes(position - len(image)))
    image[position : position + len(data)] = data


def _pages(position: int, data: bytes) -> list[Change]:
    """The write, cut at the borders of pages."""
    parts = []
    start = 0
    while start < len(data):
        size_bytes = PAGE_SIZE_BYTES - (position + start) % PAGE_SIZE_BYTES
        parts.append(Change(position + start, data[start : start + size_bytes]))
        start += size_bytes
    return parts
