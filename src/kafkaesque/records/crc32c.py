"""CRC-32C (Castagnoli) of a buffer.

The pure function uses google_crc32c, which accepts only `bytes`, so a view must be copied first.
Copies of at most 64 KiB stay in the allocator's arenas and in the CPU cache: measured 12 GB/s against
15 GB/s without a copy, while one large copy would fault in fresh pages on each call. The compiled
function copies nothing.
"""

from __future__ import annotations

from typing import Final

import google_crc32c

from kafkaesque.records.native import compiled

_CHUNK_SIZE_BYTES: Final = 64 * 1024


@compiled()
def crc32c(view: bytes | bytearray | memoryview) -> int:
    """The checksum of everything in `view`."""
    if len(view) <= _CHUNK_SIZE_BYTES:
        return int(google_crc32c.value(bytes(view)))
    crc = 0
    for start in range(0, len(view), _CHUNK_SIZE_BYTES):
        crc = google_crc32c.extend(crc, bytes(view[start : start + _CHUNK_SIZE_BYTES]))
    return crc
