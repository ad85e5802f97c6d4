"""Encodes a partition's state as records of chat.snapshot, and back. Pure.

A snapshot is incremental: one record for each entity that changed since the last one (a tombstone if it
was removed), and a header with the next journal offset. It is written to one partition in one
transaction, so a reader sees all of it or nothing. The last record of a key counts. Values begin with
the version of their format.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from kafkaesque.chat.rules.state import Account, ChatPartitionState, Conversation, EntityKey, Room
from kafkaesque.model.errors import check
from kafkaesque.model.ids import Offset

VERSION = 1
HEADER_KEY = b"header"

_encoder = msgspec.msgpack.Encoder()
_KINDS: Mapping[str, type[Account | Conversation | Room]] = {
    "account": Account,
    "conversation": Conversation,
    "room": Room,
}
_decoders = {kind: msgspec.msgpack.Decoder(type_) for kind, type_ in _KINDS.items()}


class SnapshotUnreadable(Exception):
    """Written by a later build, or damaged. The whole journal yields the same state."""


def encode_snapshot(
    state: ChatPartitionState, journal_next: Offset
) -> list[tuple[bytes, bytes | None]]:
    """Key and value of the record of each dirty entity, then those of the header."""
    records = []
    for key in sorted(state.dirty):
        entity = find_entity(state, key)
        value = None if entity is None else bytes([VERSION]) + _encoder.encode(entity)
        records.append(("/".join(key).encode(), value))
    header = bytes([VERSION]) + _encoder.encode({"journal_next": journal_next})
    return [*records, (HEADER_KEY, header)]


def decode_snapshot(
    records: Iterable[tuple[bytes, bytes | None]],
) -> tuple[ChatPartitionState, Offset]:
    """The state and the next journal offset; an empty state and 0 without a snapshot."""
    newest = dict(records)
    header = newest.pop(HEADER_KEY, None)
    state = ChatPartitionState()
    if header is None:
        return state, Offset(0)
    for key, value in newest.items():
        if value is not None:
            _place(state, key, value)
    try:
        journal_next = msgspec.msgpack.decode(_body(header), type=dict[str, int])["journal_next"]
    except (msgspec.DecodeError, KeyError) as error:
        raise SnapshotUnreadable(f"header: {error}") from None
    return state, Offset(journal_next)


def find_entity(state: ChatPartitionState, key: EntityKey) -> Account | Conversation | Room | None:
    match key.kind:
        case "account":
            return state.accounts.get(key.name)
        case "room":
            return state.rooms.get(key.name)
    check(key.kind == "conversation", f"no entity {key.kind}")
    return state.conversation(key.name, key.peer)


def _place(state: ChatPartitionState, key: bytes, value: bytes) -> None:
    try:
        kind, name, peer = key.decode().split("/")
        entity = _decoders[kind].decode(_body(value))
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, KeyError) as error:
        raise SnapshotUnreadable(f"{key!r}: {error}") from None
    match entity:
        case Account():
            state.accounts[name] = entity
        case Conversation():
            state.conversations.setdefault(name, {})[peer] = entity
        case Room():
            state.rooms[name] = entity


def _body(value: bytes) -> bytes:
    if not value or value[0] > VERSION:
        raise SnapshotUnreadable(
            f"snapshot version {value[:1]!r}; this build reads up to {VERSION}"
        )
    return value[1:]
