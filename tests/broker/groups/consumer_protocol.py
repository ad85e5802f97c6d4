"""The subscriptions that consumers send to their leader: ConsumerProtocolSubscription version 1.

The tests' own writer and reader, so that the broker's idea of it has someone to disagree with.
"""

from __future__ import annotations

import struct


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def subscription(topics: list[str], owned: dict[str, list[int]], version: int = 1) -> bytes:
    parts = [struct.pack(">hi", version, len(topics)), *map(_text, topics), struct.pack(">i", -1)]
    if version >= 1:
        parts.append(struct.pack(">i", len(owned)))
        for topic, partitions in owned.items():
            parts += [
                _text(topic),
                struct.pack(f">i{len(partitions)}i", len(partitions), *partitions),
            ]
    return b"".join(parts)


def show(metadata: bytes) -> str:
    """Version 1 as text; anything else as it is."""
    if metadata[:2] != b"\x00\x01":
        return metadata.decode()
    position = 2

    def number(layout: str) -> int:
        nonlocal position
        (value,) = struct.unpack_from(layout, metadata, position)
        position += struct.calcsize(layout)
        return int(value)

    def text() -> str:
        nonlocal position
        length = number(">h")
        position += length
        return metadata[position - length : position].decode()

    topics = [text() for _ in range(number(">i"))]
    assert number(">i") == -1
    owned = {text(): [number(">i") for _ in range(number(">i"))] for _ in range(number(">i"))}
    return f"topics={','.join(topics)} owned={_show_owned(owned)}"


def _show_owned(owned: dict[str, list[int]]) -> str:
    return ",".join(f"{topic}/{number}" for topic, numbers in owned.items() for number in numbers)
