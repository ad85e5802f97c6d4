"""What the home of one user or room asks of the home of another: values and their JSON.

A hand-over is written in the transaction of what led to it and read in the transaction of what it leads
to, so each is acted on exactly once; it needs no id of its own.
"""

from __future__ import annotations

import msgspec


class HandoverUnreadable(Exception):
    """A record of chat.handover that this build does not know."""


class Asked(msgspec.Struct, frozen=True):
    """Who waits for an answer: a partition of gw.reply, and what the gateway knows the ask by."""

    gateway: str
    reply: int
    correlation: str


class Handover(msgspec.Struct, frozen=True, tag_field="kind", omit_defaults=True):
    """Base; `to` chooses the home that acts on it."""

    to: str


class Deliver(Handover, frozen=True, tag="deliver"):
    """A message for `to`."""

    sender: str
    command_id: str
    message_id: str
    text: str
    sent_ms: int


class Answered(Handover, frozen=True, tag="answered"):
    """To the sender: what became of a Deliver; without code, it stands in the peer's inbox."""

    peer: str
    command_id: str
    message_id: str
    sent_ms: int
    code: str | None = None
    message: str | None = None


class Receipt(Handover, frozen=True, tag="receipt"):
    """To the sender: `peer` has received or read these (a Stage)."""

    peer: str
    message_ids: tuple[str, ...]
    stage: int
    at_ms: int


class Undeliverable(Handover, frozen=True, tag="undeliverable"):
    """To the sender: `peer` is gone and will never have these."""

    peer: str
    message_ids: tuple[str, ...]
    code: str
    at_ms: int


class TypingSeen(Handover, frozen=True, tag="typing"):
    sender: str
    at_ms: int


class RoomRequest(Handover, frozen=True, tag="room.request"):
    """To a room: `user` creates, joins, leaves, posts, or asks for its history."""

    user: str
    op: str
    command_id: str = ""
    """Empty where nobody waits for a result."""
    text: str = ""
    message_id: str = ""
    at_ms: int = 0
    before: str | None = None
    limit: int = 0
    asked: Asked | None = None


class RoomAnswer(Handover, frozen=True, tag="room.answer"):
    """To the user: what became of a RoomRequest."""

    room: str
    op: str
    command_id: str = ""
    message_id: str = ""
    code: str | None = None
    message: str | None = None


AnyHandover = Deliver | Answered | Receipt | Undeliverable | TypingSeen | RoomRequest | RoomAnswer

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[AnyHandover] = msgspec.json.Decoder(AnyHandover)


def encode_handover(handover: AnyHandover) -> bytes:
    return _encoder.encode(handover)


def decode_handover(data: bytes) -> AnyHandover:
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise HandoverUnreadable(str(error)) from None
