"""The layout of a record batch of format 2 (Kafka's DefaultRecordBatch): sizes, positions and bits.

The one source for Python and C: hatch_build.py passes each constant to `_native.c` as a macro of the
same name. It loads this file by itself, so this module imports nothing of ours.
"""

from __future__ import annotations

import struct
from typing import Final

_FIELDS: Final = {
    "base_offset": "q",
    "length": "i",
    "leader_epoch": "i",
    "magic": "b",
    "crc": "I",
    "attributes": "h",
    "last_offset_delta": "i",
    "base_timestamp": "q",
    "max_timestamp": "q",
    "producer_id": "q",
    "producer_epoch": "h",
    "base_sequence": "i",
    "record_count": "i",
}


def _format(names: list[str]) -> str:
    return ">" + "".join(_FIELDS[name] for name in names)


def _position(name: str) -> int:
    names = list(_FIELDS)
    return struct.calcsize(_format(names[: names.index(name)]))


HEADER: Final = struct.Struct(_format(list(_FIELDS)))
HEADER_SIZE_BYTES: Final = HEADER.size
HEADER_FIELDS: Final = len(_FIELDS)
BRIEF: Final = struct.Struct(f">qiibI{struct.calcsize('>h')}xi")
"""The fields of a header that a read needs: base offset, length, leader epoch, magic, checksum, last
offset delta."""

LENGTH_POSITION: Final = _position("length")
LENGTH_OVERHEAD_BYTES: Final = _position("leader_epoch")
"""Size of the base offset and the length field, which `batchLength` does not include."""
EPOCH_POSITION: Final = _position("leader_epoch")
MAGIC_POSITION: Final = _position("magic")
CRC_POSITION: Final = _position("crc")
CHECKSUMMED_POSITION: Final = _position("attributes")
"""Position of the attributes. The checksum covers everything from here to the end of the batch."""
DELTA_POSITION: Final = _position("last_offset_delta")
BASE_TIMESTAMP_POSITION: Final = _position("base_timestamp")
MAX_TIMESTAMP_POSITION: Final = _position("max_timestamp")
PRODUCER_POSITION: Final = _position("producer_id")
PRODUCER_EPOCH_POSITION: Final = _position("producer_epoch")
SEQUENCE_POSITION: Final = _position("base_sequence")
COUNT_POSITION: Final = _position("record_count")

MAGIC: Final = 2
CODEC_MASK: Final = 0x07
"""Of the attributes, as are the bits."""
APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
