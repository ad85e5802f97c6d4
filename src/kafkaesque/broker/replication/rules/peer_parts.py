"""What two brokers say to each other on a link, as values, with the bounds of a frame.

The bytes are in `peer_codec`, who may say what in `link`. What a Raft group says is `raft.messages`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from kafkaesque.broker.raft.messages import Message
from kafkaesque.model.ids import GroupId
from kafkaesque.model.limits import KIB, MIB

FRAME_BYTES_MAX: Final = 64 * MIB + 64 * KIB
"""The largest batch that a setting allows, with room for what describes it."""

ELEMENTS_MAX: Final = 200_000
"""Messages and entries in one frame: bounds the time to decode it, whatever the bytes."""

MEMBERS_MAX: Final = 1024
"""Voters, or learners, of one group."""

Blob: TypeAlias = bytes | bytearray | memoryview
BatchReader: TypeAlias = Callable[[memoryview], object]
"""Makes the payload of an entry out of a batch's bytes, which it may keep."""


class Ping(NamedTuple):
    """Answered at once with the same stamp; to the other side it says nothing else."""

    stamp: int


class Pong(NamedTuple):
    stamp: int


class Post(NamedTuple):
    """One way: nobody says whether it arrived."""

    kind: int
    body: bytes


class Call(NamedTuple):
    """`number` is unique among the calls of one side of one link."""

    number: int
    kind: int
    body: bytes


class Outcome(IntEnum):
    DONE = 0
    FAILED = 1
    """The body is a text that says why."""
    BUSY = 2
    """Not begun: too much is under way."""


class Answer(NamedTuple):
    number: int
    outcome: Outcome
    body: bytes


class GroupMessage(NamedTuple):
    """A Raft message, and whose. The payload of an entry is what the BatchReader made of a
    batch, `bytes` for other DATA, a Membership, or None."""

    group: GroupId
    message: Message


Part: TypeAlias = Ping | Pong | Post | Call | Answer | GroupMessage
