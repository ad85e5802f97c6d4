"""Which topics a consumer subscribes to, read from the metadata that it sends to its leader.

That metadata belongs to the clients (ConsumerProtocolSubscription): the broker passes it on
untouched and reads only the part that every version begins with.
"""

from __future__ import annotations

import struct

_PREFIX = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics, or None when the bytes are no consumer subscription.

    Version 0 is a prefix of all later ones (Kafka's ClassicGroup.computeSubscribedTopics).
    """
    if len(metadata) < _PREFIX.size:
        return None
    version, count = _PREFIX.unpack_from(metadata)
    position = _PREFIX.size
    if version < 0 or count < 0 or count * _LENGTH.size > len(metadata) - position:
        return None
    topics = []
    for _ in range(count):
        if position + _LENGTH.size > len(metadata):
            return None
        (length,) = _LENGTH.unpack_from(metadata, position)
        position += _LENGTH.size
        if length < 0 or position + length > len(metadata):
            return None
        try:
            topics.append(metadata[position : position + length].decode())
        except UnicodeDecodeError:
            return None
        position += length
    return frozenset(topics)
