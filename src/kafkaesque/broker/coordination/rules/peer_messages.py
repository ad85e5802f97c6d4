"""The messages between brokers about coordination, over their links."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import msgspec

from kafkaesque.broker.raft.types import LogIndex, Term
from kafkaesque.model.errors import ProtocolError

PROPOSE, READ = 16, 17
"""Kinds of calls: commands for the log; the index that a read must wait for."""
TOUCH = 16
"""Kind of post: the sessions in which clients sent requests."""


class ProposedCommand(NamedTuple):
    """A command to append, with the unique name by which its proposer recognises it."""

    key: bytes
    command: bytes


class Accepted(NamedTuple):
    """How many entries of a call, from the first on, the leader appended, and in which term."""

    entry_count: int
    term: Term


_entries = msgspec.msgpack.Decoder(list[ProposedCommand])
_accepted = msgspec.msgpack.Decoder(Accepted)
_index = msgspec.msgpack.Decoder(int)
_sessions = msgspec.msgpack.Decoder(list[int])
_encode = msgspec.msgpack.Encoder().encode


def encode_entries(entries: Sequence[ProposedCommand]) -> bytes:
    return _encode(entries)


def decode_entries(body: bytes) -> list[ProposedCommand]:
    try:
        return _entries.decode(body)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"proposals of a peer: {error}") from None


def encode_accepted(accepted: Accepted) -> bytes:
    return _encode(accepted)


def decode_accepted(body: bytes) -> Accepted:
    try:
        return _accepted.decode(body)
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
        raise ProtocolError(f"touched sessions of a peer: {error}") from None
