"""Small files that are replaced atomically: after a crash either the old or the new content is there.

The order is: write to a temporary name, fsync, rename, fsync the directory. A checksum in the header
detects damage. The content is opaque.
"""

from __future__ import annotations

import os
import struct
import zlib
from typing import Final

from kafkaesque.broker.storage.open_files import REAL_CALLS, SystemCalls

_HEADER: Final = struct.Struct(">4sII")
"""Magic, size of the content, CRC-32 of the content."""
_MAGIC: Final = b"KQS1"
TEMPORARY_SUFFIX: Final = ".tmp"


class StateDamaged(Exception):
    """The file exists but does not contain what was written."""


def save(path: str, content: bytes, calls: SystemCalls = REAL_CALLS) -> None:
    """Replaces the state at `path`. Raises OSError; the old state is kept then."""
    temporary = path + TEMPORARY_SUFFIX
    fd = calls.open(temporary, create=True)
    try:
        calls.ftruncate(fd, 0)
        data = _HEADER.pack(_MAGIC, len(content), zlib.crc32(content)) + content
        view, position = memoryview(data), 0
        while position < len(data):
            position += calls.pwrite(fd, view[position:], position)
        calls.fdatasync(fd)
    finally:
        calls.close(fd)
    calls.rename(temporary, path)
    calls.sync_directory(os.path.dirname(path))


def load(path: str, calls: SystemCalls = REAL_CALLS) -> bytes | None:
    """Returns the state at `path`, or None if there never was one. Raises StateDamaged."""
    try:
        fd = calls.open(path, create=False)
    except FileNotFoundError:
        return None
    try:
        data = calls.pread(fd, calls.stat(path).size_bytes + 1, 0)
    finally:
        calls.close(fd)
    if len(data) < _HEADER.size:
        raise StateDamaged(f"{path} has {len(data)} bytes")
    magic, size_bytes, checksum = _HEADER.unpack_from(data)
    content = data[_HEADER.size :]
    if magic != _MAGIC or len(content) != size_bytes or zlib.crc32(content) != checksum:
        raise StateDamaged(f"{path} fails its checksum")
    return content
