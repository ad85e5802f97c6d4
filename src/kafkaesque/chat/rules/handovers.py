"""Hand-overs: messages between home partitions through the topic chat.handover. Values and their JSON.

A hand-over is written in the transaction of the input that caused it, and its offset is committed in the
transaction of its own effects. Each is processed exactly once, so it needs no id.
"""

from __future__ import annotations

import msgspec


class HandoverUnreadable(Exception):
    """A record of chat.handover that this build cannot decode."""


class ReplyTo(msgspec.Struct, frozen=True):
    """Where to send the reply to a query: a partition of gw.reply, and the gateway's correlation id."""

    gateway: str
    reply: int
    correlation: str


class Handover(msgspec.Struct, frozen=True, tag_field="kind", omit_defaults=True):
    """Base. `to` is the user or room whose home processes it."""

    to: str


class Deliver(Handover, frozen=True, tag="deliver"):
    """A message for `to`."""

    sender: str
    command_id: str
    message_id: str
    text: str
    sent_ms: int


class Answered(Handover, frozen=True, tag="answered"):
    """To the sender: the outcome of a Deliver. Without `code` the message is in the peer's inbox."""

    peer: str
    command_id: str
    message_id: str
    sent_ms: int
    code: str | None = None
    message: str | None = None


class Receipt(Handover, frozen=True, tag="receipt"):
    """To the sender: `peer` has received or read these messages (`stage` is a DeliveryStage)."""

    peer: str
    message_ids: tuple[str, ...]
    stage: int
    at_ms: int


class Undeliverable(Handover, frozen=True, tag="undeliverable"):
    """To the sender: `peer` was deleted and will never receive these messages."""

    peer: str
    message_ids: tuple[str, ...]
    code: str
    at_ms: int


class TypingSeen(Handover, frozen=True, tag="typing"):
    sender: str
    at_ms: int


class RoomRequest(Handover, frozen=True, tag="room.request"):
    """To a room: `user` creates, joins or leaves it, posts, or queries its history."""

    user: str
    op: str
    command_id: str = ""
    """Empty if no result is expected."""
    text: str = ""
    message_id: str = ""
    at_ms: int = 0
    before: str | None = None
    limit: int = 0
    reply_to: ReplyTo | None = msgspec.field(default=None, name="asked")


class RoomAnswer(Handover, frozen=True, tag="room.answer"):
    """To the user: the outcome of a RoomRequest."""

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
