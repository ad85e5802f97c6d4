"""How far one partition is done when its records end in any order. Pure.

A group commits one offset a partition: everything before it is done. With many calls under way that is
the lowest unfinished one, and whatever ended beyond it would be repeated after a crash. So the commit
carries, as its metadata, a bitmap of what is finished beyond the offset (the idea of Confluent's
parallel consumer). The window between the lowest unfinished offset and the highest seen is bounded, so
that the bitmap always fits into the 4096 characters that Kafka allows.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections import deque
from collections.abc import Iterable

from kafkaesque.client.ports import CommitPoint
from kafkaesque.model.errors import check
from kafkaesque.model.ids import Offset
from kafkaesque.model.limits import OFFSET_METADATA_LENGTH_MAX

WINDOW_OFFSETS_MAX = 24_000
"""3,000 bytes of bitmap are 4,000 characters."""
_NONE, _PLAIN, _DEFLATED = "g1", "g1b:", "g1z:"

check(
    len(_PLAIN) + (WINDOW_OFFSETS_MAX + 7) // 8 * 4 // 3 + 4 <= OFFSET_METADATA_LENGTH_MAX,
    "the bitmap of a full window fits into the metadata of a commit",
)


def pack_gaps(base: int, finished: Iterable[int]) -> str:
    """Metadata that names the finished offsets from `base` on; `g1` alone if there are none."""
    bits = bytearray()
    for offset in finished:
        place = offset - base
        if place >= WINDOW_OFFSETS_MAX:
            # Only a long aborted transaction leaves such a stretch without records.
            continue
        if place // 8 >= len(bits):
            bits.extend(bytes(place // 8 + 1 - len(bits)))
        bits[place // 8] |= 1 << place % 8
    if not bits:
        return _NONE
    deflated = zlib.compress(bits, 1)
    prefix, data = (_DEFLATED, deflated) if len(deflated) < len(bits) else (_PLAIN, bytes(bits))
    return prefix + base64.b64encode(data).decode()


def unpack_gaps(base: int, metadata: str) -> frozenset[int]:
    """Offsets named by `metadata`; of another's or damaged metadata none, which costs a repetition."""
    prefix, text = metadata[: len(_PLAIN)], metadata[len(_PLAIN) :]
    if prefix not in (_PLAIN, _DEFLATED):
        return frozenset()
    try:
        data = base64.b64decode(text, validate=True)
        if prefix == _DEFLATED:
            data = zlib.decompressobj().decompress(data, (WINDOW_OFFSETS_MAX + 7) // 8)
    except (binascii.Error, ValueError, zlib.error):
        return frozenset()
    return frozenset(
        base + place for place in range(len(data) * 8) if data[place // 8] >> place % 8 & 1
    )


class Progress:
    """One partition. Offsets begin in ascending order and end in any."""

    def __init__(self, point: CommitPoint | None = None) -> None:
        self._begun: deque[int] = deque()
        self._times: deque[int] = deque()
        """Of `_begun`: the times of their records."""
        self._finished: set[int] = set()
        """Of `_begun`. Those at its front are taken off both."""
        self._restored = set() if point is None else set(unpack_gaps(point.offset, point.metadata))
        self._next = -1 if point is None else int(point.offset)
        self._committed = point

    def begin(self, offset: Offset, time_ms: int = 0) -> bool:
        """False if an earlier reader of this partition has finished it already."""
        if offset < self._next:
            # The topic was made anew, and the group's offsets with it are worth nothing.
            self._begun.clear()
            self._times.clear()
            self._finished.clear()
            self._restored.clear()
        self._next = offset + 1
        self._begun.append(offset)
        self._times.append(time_ms)
        if offset in self._restored:
            self._restored.discard(offset)
            self.finish(offset)
            return False
        return True

    def finish(self, offset: Offset) -> None:
        self._finished.add(offset)
        while self._begun and self._begun[0] in self._finished:
            self._finished.discard(self._begun.popleft())
            self._times.popleft()

    @property
    def window(self) -> int:
        """Offsets that the bitmap of a commit would have to span."""
        return self._next - self._begun[0] if self._begun else 0

    @property
    def lowest_open(self) -> Offset | None:
        return Offset(self._begun[0]) if self._begun else None

    @property
    def oldest_ms(self) -> int | None:
        """Time of the record at the lowest open offset."""
        return self._times[0] if self._times else None

    def point(self) -> CommitPoint | None:
        """What to commit; None if nothing changed since `committed`."""
        if self._next < 0:
            return None
        base = self._begun[0] if self._begun else self._next
        # What was restored and not yet read again is finished all the same.
        finished = self._finished | {one for one in self._restored if one >= base}
        point = CommitPoint(Offset(base), pack_gaps(base, finished))
        return None if point == self._committed else point

    def committed(self, point: CommitPoint) -> None:
        self._committed = point
