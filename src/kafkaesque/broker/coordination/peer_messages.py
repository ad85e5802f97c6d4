"""What brokers say to each other about coordination, over their links. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import msgspec

from kafkaesque.broker.raft.types import LogIndex, Term
from kafkaesque.model.errors import ProtocolError

PROPOSE, READ = 16, 17
"""Kinds of calls: commands for the log; the index that a read has to wait for."""
TOUCH = 16
"""Kind of post: sessions that were heard."""


class Entry(NamedTuple):
    """A command on its way to the log, with the name under which its proposer will know it."""

    key: bytes
    command: bytes


class Taken(NamedTuple):
    """How many of a call's entries, from the first on, are in the log, and in which term."""

    entry_count: int
    term: Term


_entries = msgspec.msgpack.Decoder(list[Entry])
_taken = msgspec.msgpack.Decoder(Taken)
_index = msgspec.msgpack.Decoder(int)
_sessions = msgspec.msgpack.Decoder(list[int])
_encode = msgspec.msgpack.Encoder().encode


def encode_entries(entries: Sequence[Entry]) -> bytes:
    return _encode(entries)


def decode_entries(body: bytes) -> list[Entry]:
    try:
        return _entries.decode(body)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"proposals of a peer: {error}") from None


def encode_taken(taken: Taken) -> bytes:
    return _encode(taken)


def decode_taken(body: bytes) -> Taken:
    try:
        return _taken.decode(body)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"a peer's answer to proposals: {error}") from None


def encode_index(index: LogIndex) -> bytes:
    return _encode(index)


def decode_index(body: bytes) -> LogIndex:
    try:
        return LogIndex(_index.decode(body))
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"a peer's read index: {error}") from None


def encode_sessions(session_ids: Collection[int]) -> bytes:
    return _encode(list(session_ids))


def decode_sessions(body: bytes) -> list[int]:
    try:
        return _sessions.decode(body)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"sessions heard by a peer: {error}") from None
