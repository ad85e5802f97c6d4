"""Positions: the place of an event in the log, as the text that a client stores and sends back.

    mI1V1fD9SzuR7hSv9Fdqqw.17.123456      topic id (base64url, as Kafka prints it), partition, offset

The topic id is the epoch: a recreated topic has another id, which invalidates old positions. A position
identifies an event; resuming from it starts with the next one. It is not a secret: a gateway delivers
events by user, whatever the position.
"""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple
from uuid import UUID

from kafkaesque.edge.protocol.codes import CloseCode, Violation
from kafkaesque.model.ids import Offset, PartitionIndex, TopicId

POSITION_LENGTH_MAX = 64
EARLIEST = "earliest"
_ID_LENGTH = 22


class Position(NamedTuple):
    """`offset` -1 is before the first record."""

    topic: TopicId
    partition: PartitionIndex
    offset: Offset

    def __str__(self) -> str:
        return f"{prefix_of(self.topic, self.partition)}{self.offset}"


def prefix_of(topic: TopicId, partition: PartitionIndex) -> str:
    """The common prefix of all positions of one partition."""
    name = base64.urlsafe_b64encode(topic.bytes).decode().rstrip("=")
    return f"{name}.{partition}."


def parse_position(text: str) -> Position:
    """Raises Violation for invalid text. The gateway checks whether the position can be resumed from."""
    if len(text) > POSITION_LENGTH_MAX:
        raise _bad(text[:POSITION_LENGTH_MAX])
    name, dot, rest = text.partition(".")
    partition, second_dot, offset = rest.partition(".")
    if not (dot and second_dot and len(name) == _ID_LENGTH):
        raise _bad(text)
    try:
        topic = UUID(bytes=base64.b64decode(name + "==", altchars=b"-_", validate=True))
    except (binascii.Error, ValueError):
        raise _bad(text) from None
    return Position(
        TopicId(topic),
        PartitionIndex(_number(partition, text, 2**31)),
        Offset(_number(offset, text, 2**63)),
    )


def _number(digits: str, text: str, limit: int) -> int:
    if digits == "-1":
        return -1
    if not (digits.isascii() and digits.isdigit()) or int(digits) >= limit:
        raise _bad(text)
    return int(digits)


def _bad(text: str) -> Violation:
    return Violation(CloseCode.BAD_FRAME, f"invalid position {text!r}")
