"""The metadata of an offset commit: which records beyond the committed offset are still open.

A group commits one offset per partition, and everything before it is done. With many calls in flight some
records beyond it are done too, and a crash would repeat them. So the commit's metadata lists what is open
between the committed offset and the end of what was read (the idea of Confluent's parallel consumer):
single offsets, as a bitmap or, if few are open in a long range, as a list; and keys whose records
are all open from some offset on, however many they are. Kafka allows 4096 characters.
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
"""The size of a key: its digest and the distance of its first open offset from the base."""
KEYS_MAX = 32
"""This many keys always fit beside the single offsets."""
_HEAD_BYTES = 16
_BYTES_MAX = (OFFSET_METADATA_LENGTH_MAX - len(_PLAIN)) // 4 * 3
SINGLES_BYTES_MAX = _BYTES_MAX - _HEAD_BYTES - KEYS_MAX * KEY_BYTES
WINDOW_OFFSETS_MAX = 20_000
"""In a range of this length any offsets may be open: the bitmap fits."""
_BITMAP, _LIST = 0, 1

check(WINDOW_OFFSETS_MAX // 8 + 1 <= SINGLES_BYTES_MAX, "a bitmap fits into a commit")


def list_bytes(opened: int, window: int) -> int:
    """The maximum size of a list of that many open offsets: a distance below 2**14 takes two bytes, and
    a window holds few larger ones."""
    return 2 * opened + (window >> 14) + (window >> 21)


def digest_of(key: bytes) -> bytes:
    return hashlib.blake2b(key, digest_size=DIGEST_BYTES).digest()


@dataclass(slots=True)
class OpenOffsets:
    """An offset from `base` up to `end` is done unless it is in `opened` or belongs to an open key."""

    base: int
    end: int
    opened: set[int] = field(default_factory=set)
    keys: dict[bytes, int] = field(default_factory=dict)
    """By digest of the key: the offset from which everything of the key is open."""

    def is_open(self, offset: int, key: bytes | None) -> bool:
        if offset in self.opened:
            return True
        if key is None or not self.keys:
            return False
        return self.keys.get(digest_of(key), self.end) <= offset


def encode_metadata(opened: OpenOffsets) -> str:
    """Returns `g2` alone if nothing beyond the base is done. What does not fit counts as open."""
    if opened.end <= opened.base:
        return _NONE
    data = _layout(opened, opened.end)
    window = min(opened.end - opened.base, 2 * WINDOW_OFFSETS_MAX)
    while len(data) > _BYTES_MAX:
        # Only if a long aborted transaction made the window jump while very many offsets were open.
        window //= 2
        data = _layout(opened, opened.base + window)
    deflated = zlib.compress(data, 1)
    prefix, data = (_DEFLATED, deflated) if len(deflated) < len(data) else (_PLAIN, data)
    return prefix + base64.b64encode(data).decode()


def _layout(source: OpenOffsets, end: int) -> bytes:
    base, window = source.base, end - source.base
    keys = {digest: at for digest, at in source.keys.items() if at < end}
    data = bytearray((*_varint(window), *_varint(len(keys))))
    for digest, at in keys.items():
        data += digest
        data.extend(_varint(max(0, at - base)))
    opened = [offset for offset in source.opened if offset < end]
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


def decode_metadata(base: int, metadata: str) -> OpenOffsets:
    """Foreign or damaged metadata counts as empty, which costs a repetition."""
    nothing = OpenOffsets(base, base)
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


def _parse(base: int, data: bytes) -> OpenOffsets:
    window, at = _number(data, 0)
    count, at = _number(data, at)
    found = OpenOffsets(base, base + window)
    for _ in range(count):
        digest = data[at : at + DIGEST_BYTES]
        distance, at = _number(data, at + DIGEST_BYTES)
        found.keys[digest] = base + distance
    layout, body = data[at], data[at + 1 :]
    if layout == _BITMAP:
        if len(body) != (window + 7) // 8:
            raise ValueError("the bitmap has another length")
        found.opened.update(
            base + place for place in range(window) if body[place // 8] >> place % 8 & 1
        )
        return found
    offset, at = base, 0
    while at < len(body):
        distance, at = _number(body, at)
        offset += distance
        found.opened.add(offset)
    return found


def _varint(number: int) -> Iterator[int]:
    while number > 0x7F:
        yield number & 0x7F | 0x80
        number >>= 7
    yield number


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Returns the number at `at` and the position after it. Raises IndexError if it is cut off."""
    number = shift = 0
    while data[at] & 0x80:
        number |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
    return number | data[at] << shift, at + 1


def merge_keys(keys: Iterable[Mapping[bytes, int]]) -> dict[bytes, int]:
    """Merges the mappings; a key that occurs in several gets its lowest offset."""
    lowest: dict[bytes, int] = {}
    for some in keys:
        for digest, at in some.items():
            lowest[digest] = min(at, lowest.get(digest, at))
    return lowest
