"""Small state that is replaced as a whole: after a crash there is the old one or the new one.

The order is write to a temporary name, fsync, rename, fsync the directory. A checksum in front
tells damage from content; what the content means is the caller's affair.
"""

from __future__ import annotations

import os
import struct
import zlib
from typing import Final

_HEADER: Final = struct.Struct(">4sII")
"""Magic, size of the content, CRC-32 of the content."""
_MAGIC: Final = b"KQS1"
TEMPORARY_SUFFIX: Final = ".tmp"


class StateDamaged(Exception):
    """The file is there and is not what was written."""


def save(path: str, content: bytes) -> None:
    """Replace the state at `path`. Raises OSError, and then the old state stands."""
    temporary = path + TEMPORARY_SUFFIX
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        data = _HEADER.pack(_MAGIC, len(content), zlib.crc32(content)) + content
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(temporary, path)
    sync_directory(os.path.dirname(path))


def load(path: str) -> bytes | None:
    """The state at `path`, None if there never was one; StateDamaged if it is not whole."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        data = os.read(fd, os.fstat(fd).st_size + 1)
    finally:
        os.close(fd)
    if len(data) < _HEADER.size:
        raise StateDamaged(f"{path} has {len(data)} bytes")
    magic, size_bytes, checksum = _HEADER.unpack_from(data)
    content = data[_HEADER.size :]
    if magic != _MAGIC or len(content) != size_bytes or zlib.crc32(content) != checksum:
        raise StateDamaged(f"{path} fails its checksum")
    return content


def sync_directory(path: str) -> None:
    """Make the names in a directory durable."""
    fd = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
