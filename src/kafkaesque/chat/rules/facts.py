"""What the journal says: facts that the state of a partition is a fold of. Values and their JSON.

One record of the journal is one Entry: all facts of one command or hand-over. Fields are only ever
added, with defaults; a change that an older fold would misread takes a new VERSION and a new tag.
"""

from __future__ import annotations

import msgspec

VERSION = 1


class EntryUnreadable(Exception):
    """A record of the journal that this build cannot fold: it must not serve the partition."""


class Fact(msgspec.Struct, frozen=True, tag_field="fact", omit_defaults=True):
    """Base; each subclass names its tag."""


class AccountCreated(Fact, frozen=True, tag="account.created"):
    user: str
    password_hash: str
    """argon2, by the gateway; empty for an account that only tokens open."""
    at_ms: int


class AccountDeleted(Fact, frozen=True, tag="account.deleted"):
    user: str
    at_ms: int


class CommandTaken(Fact, frozen=True, tag="command.taken"):
    """The command was decided: its repeats have no effect."""

    user: str
    id: str


class MessageSent(Fact, frozen=True, tag="message.sent"):
    """At the sender's home: handed over, not yet answered."""

    user: str
    to: str
    message_id: str
    text: str
    sent_ms: int


class MessageTaken(Fact, frozen=True, tag="message.taken"):
    """At the recipient's home: it stands in the inbox."""

    user: str
    sender: str
    message_id: str
    text: str
    sent_ms: int


class MessageSettled(Fact, frozen=True, tag="message.settled"):
    """At the sender's home: how far messages to `peer` have come (a Stage)."""

    user: str
    peer: str
    message_ids: tuple[str, ...]
    stage: int


class MessagesMarked(Fact, frozen=True, tag="messages.marked"):
    """At the recipient's home: messages of `peer` were received or read (a Stage)."""

    user: str
    peer: str
    message_ids: tuple[str, ...]
    stage: int


class RoomEntered(Fact, frozen=True, tag="room.entered"):
    """At the user's home."""

    user: str
    room: str


class RoomLeft(Fact, frozen=True, tag="room.left"):
    """At the user's home."""

    user: str
    room: str


class RoomCreated(Fact, frozen=True, tag="room.created"):
    """At the room's home, as everything below. Its creator is its first member."""

    room: str
    by: str
    at_ms: int


class MemberAdded(Fact, frozen=True, tag="room.member.added"):
    room: str
    user: str


class MemberRemoved(Fact, frozen=True, tag="room.member.removed"):
    room: str
    user: str


class RoomPosted(Fact, frozen=True, tag="room.posted"):
    room: str
    sender: str
    message_id: str
    text: str
    sent_ms: int


AnyFact = (
    AccountCreated
    | AccountDeleted
    | CommandTaken
    | MessageSent
    | MessageTaken
    | MessageSettled
    | MessagesMarked
    | RoomEntered
    | RoomLeft
    | RoomCreated
    | MemberAdded
    | MemberRemoved
    | RoomPosted
)


class _Entry(msgspec.Struct, frozen=True):
    v: int
    facts: tuple[AnyFact, ...]


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_Entry)


def encode_entry(facts: tuple[AnyFact, ...]) -> bytes:
    return _encoder.encode(_Entry(VERSION, facts))


def decode_entry(data: bytes) -> tuple[AnyFact, ...]:
    try:
        entry = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise EntryUnreadable(str(error)) from None
    if entry.v > VERSION:
        raise EntryUnreadable(f"version {entry.v}; this build reads up to {VERSION}")
    return entry.facts
