"""Facts: the events of the journal, from which a partition's state is folded. Values and their JSON.

One journal record is one entry: all facts of one command or hand-over. Fields are only ever added, with
defaults. A change that an older fold would misread takes a new VERSION and a new tag.
"""

from __future__ import annotations

import msgspec

VERSION = 1


class EntryUnreadable(Exception):
    """A journal record that this build cannot fold; it must not serve the partition."""


class Fact(msgspec.Struct, frozen=True, tag_field="fact", omit_defaults=True):
    """Base of all facts."""


class AccountCreated(Fact, frozen=True, tag="account.created"):
    user: str
    password_hash: str
    """argon2, computed by the gateway; empty for an account that logs in with tokens only."""
    at_ms: int


class AccountDeleted(Fact, frozen=True, tag="account.deleted"):
    user: str
    at_ms: int


class CommandTaken(Fact, frozen=True, tag="command.taken"):
    """The command was decided; repeats of its id have no effect."""

    user: str
    id: str


class MessageSent(Fact, frozen=True, tag="message.sent"):
    """At the sender's home: handed over to the recipient's home, not yet answered."""

    user: str
    to: str
    message_id: str
    text: str
    sent_ms: int


class MessageTaken(Fact, frozen=True, tag="message.taken"):
    """At the recipient's home: accepted and written to the inbox."""

    user: str
    sender: str
    message_id: str
    text: str
    sent_ms: int


class MessageSettled(Fact, frozen=True, tag="message.settled"):
    """At the sender's home: messages to `peer` have reached `stage` (a DeliveryStage)."""

    user: str
    peer: str
    message_ids: tuple[str, ...]
    stage: int


class MessagesMarked(Fact, frozen=True, tag="messages.marked"):
    """At the recipient's home: messages from `peer` were received or read (`stage` is a DeliveryStage)."""

    user: str
    peer: str
    message_ids: tuple[str, ...]
    stage: int


class RoomEntered(Fact, frozen=True, tag="room.entered"):
    """At the user's home: the user is a member of the room."""

    user: str
    room: str


class RoomLeft(Fact, frozen=True, tag="room.left"):
    """At the user's home: the user is no longer a member."""

    user: str
    room: str


class RoomCreated(Fact, frozen=True, tag="room.created"):
    """At the room's home, like the facts below. The creator is the first member."""

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
        raise EntryUnreadable(f"journal version {entry.v}; this build reads up to {VERSION}")
    return entry.facts
