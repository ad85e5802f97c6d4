"""What is unfinished beyond a committed offset, as the few bytes that a commit may carry. Pure.

A group commits one offset a partition: everything before it is done. With many calls under way, some
beyond it are done too, and would be repeated after a crash. So the metadata of a commit names what is
open from the offset up to the end of what was read (the idea of Confluent's parallel consumer): single
offsets, as a bitmap or, where few are open in a long stretch, as a list; and keys, of which everything
from some offset on is open, however much that is. Kafka allows 4096 characters.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kafkaesque.model.errors import check
from kafkaesque.model.limits import OFFSET_METADATA_LENGTH_MAX

_NONE, _PLAIN, _DEFLATED = "g2", "g2b:", "g2z:"
DIGEST_BYTES = 8
KEY_BYTES = DIGEST_BYTES + 5
"""What a key takes: its digest and how far from the base its first open offset is."""
KEYS_MAX = 32
"""For as many keys there is always room beside the single offsets."""
_HEAD_BYTES = 16
_BYTES_MAX = (OFFSET_METADATA_LENGTH_MAX - len(_PLAIN)) // 4 * 3
SINGLES_BYTES_MAX = _BYTES_MAX - _HEAD_BYTES - KEYS_MAX * KEY_BYTES
WINDOW_OFFSETS_MAX = 20_000
"""In so long a stretch any offsets may be open: a bitmap fits."""
_BITMAP, _LIST = 0, 1

check(WINDOW_OFFSETS_MAX // 8 + 1 <= SINGLES_BYTES_MAX, "a bitmap fits into a commit")


def list_bytes(opened: int, window: int) -> int:
    """Bytes that a list of so many open offsets takes at most: a distance below 2**14 takes two, and
    there are not many larger ones in the window."""
    return 2 * opened + (window >> 14) + (window >> 21)


def digest_of(key: bytes) -> bytes:
    return hashlib.blake2b(key, digest_size=DIGEST_BYTES).digest()


@dataclass(slots=True)
class Gaps:
    """`base` <= offset < `end` is done, unless it is in `opened` or of a key that is open from there."""

    base: int
    end: int
    opened: set[int] = field(default_factory=set)
    keys: dict[bytes, int] = field(default_factory=dict)
    """Digests of keys, and the offset from which on all of the key is open."""

    def is_open(self, offset: int, key: bytes | None) -> bool:
        if offset in self.opened:
            return True
        if key is None or not self.keys:
            return False
        return self.keys.get(digest_of(key), self.end) <= offset


def pack_gaps(gaps: Gaps) -> str:
    """`g2` alone if nothing is done beyond the base. What does not fit is not said to be done."""
    if gaps.end <= gaps.base:
        return _NONE
    data = _layout(gaps, gaps.end)
    window = min(gaps.end - gaps.base, 2 * WINDOW_OFFSETS_MAX)
    while len(data) > _BYTES_MAX:
        # Only where a long aborted transaction made the window jump while very much was open.
        window //= 2
        data = _layout(gaps, gaps.base + window)
    deflated = zlib.compress(data, 1)
    prefix, data = (_DEFLATED, deflated) if len(deflated) < len(data) else (_PLAIN, data)
    return prefix + base64.b64encode(data).decode()


def _layout(gaps: Gaps, end: int) -> bytes:
    base, window = gaps.base, end - gaps.base
    keys = {digest: at for digest, at in gaps.keys.items() if at < end}
    data = bytearray((*_varint(window), *_varint(len(keys))))
    for digest, at in keys.items():
        data += digest
        data.extend(_varint(max(0, at - base)))
    opened = [offset for offset in gaps.opened if offset < end]
    if window <= WINDOW_OFFSETS_MAX:
        data.append(_BITMAP)
        bits = bytearray((window + 7) // 8)
        for offset in opened:
            bits[(offset - base) // 8] |= 1 << (offset - base) % 8
        return bytes(data + bits)
    data.append(_LIST)
    before = base
    for offset in sorted(opened):
        data.extend(_varint(offset - before))
        before = offset
    return bytes(data)


def unpack_gaps(base: int, metadata: str) -> Gaps:
    """Of another's or damaged metadata nothing, which costs a repetition."""
    nothing = Gaps(base, base)
    prefix, text = metadata[: len(_PLAIN)], metadata[len(_PLAIN) :]
    if prefix not in (_PLAIN, _DEFLATED):
        return nothing
    try:
        data = base64.b64decode(text, validate=True)
        if prefix == _DEFLATED:
            data = zlib.decompressobj().decompress(data, _BYTES_MAX)
        return _parse(base, data)
    except (binascii.Error, ValueError, zlib.error, IndexError):
        return nothing


def _parse(base: int, data: bytes) -> Gaps:
    window, at = _number(data, 0)
    count, at = _number(data, at)
    gaps = Gaps(base, base + window)
    for _ in range(count):
        digest = data[at : at + DIGEST_BYTES]
        distance, at = _number(data, at + DIGEST_BYTES)
        gaps.keys[digest] = base + distance
    layout, body = data[at], data[at + 1 :]
    if layout == _BITMAP:
        if len(body) != (window + 7) // 8:
            raise ValueError("a bitmap of another length")
        gaps.opened.update(
            base + place for place in range(window) if body[place // 8] >> place % 8 & 1
        )
        return gaps
    offset, at = base, 0
    while at < len(body):
        distance, at = _number(body, at)
        offset += distance
        gaps.opened.add(offset)
    return gaps


def _varint(number: int) -> Iterator[int]:
    while number > 0x7F:
        yield number & 0x7F | 0x80
        number >>= 7
    yield number


def _number(data: bytes, at: int) -> tuple[int, int]:
    """The number at `at`, and where the next begins. IndexError if it is cut off."""
    number = shift = 0
    while data[at] & 0x80:
        number |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
    return number | data[at] << shift, at + 1


def merged(keys: Iterable[Mapping[bytes, int]]) -> dict[bytes, int]:
    """Of several that speak of the same key, the lowest."""
    lowest: dict[bytes, int] = {}
    for some in keys:
        for digest, at in some.items():
            lowest[digest] = min(at, lowest.get(digest, at))
    return lowest
