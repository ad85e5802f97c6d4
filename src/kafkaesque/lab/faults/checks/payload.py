"""Record values that contain their own identity, so that any changed byte is detected. No I/O."""

from __future__ import annotations

import zlib
from typing import Final

from kafkaesque.lab.faults.checks.history import Key, Value

_SHOWN_BYTES_MAX: Final = 24


def encode_value(key: Key, value: int, size_bytes: int) -> bytes:
    """`key/value/` and filler that depends on both, `size_bytes` long unless that is too short for both."""
    name = b"%d/%d/%d/" % (key, value, size_bytes)
    filler = b"%08x" % zlib.crc32(name)
    missing = max(len(filler), size_bytes - len(name))
    return name + (filler * (missing // len(filler) + 1))[:missing]


def decode_value(key: Key, data: bytes | None) -> Value:
    """The counter, or a description if these are not the bytes of a value sent to this key."""
    if data is None:
        return "no value"
    parts = data.split(b"/", 3)
    if len(parts) == 4 and all(part.isdigit() for part in parts[:3]):
        sent_to, value, size_bytes = (int(part) for part in parts[:3])
        if sent_to == key and data == encode_value(key, value, size_bytes):
            return value
    return f"{len(data)} bytes {data[:_SHOWN_BYTES_MAX]!r}"


def key_of(data: bytes) -> Key | None:
    """The key in the bytes; None if there is none."""
    head = data.split(b"/", 1)[0]
    return int(head) if head.isdigit() else None
