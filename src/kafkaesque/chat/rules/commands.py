"""Commands and queries of clients: parses a record of gw.cmd.* into a ChatCommand. Pure.

The gateway writes the record, so its headers can be trusted. The value and the ids come from the client
and cannot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import Meta

from kafkaesque.chat.rules.handovers import ReplyTo
from kafkaesque.chat.rules.names import (
    ID_LENGTH_MAX,
    NAME_LENGTH_MAX,
    PAGE_MAX,
    RECEIPT_IDS_MAX,
    TEXT_LENGTH_MAX,
    is_id,
)

Name = Annotated[str, Meta(max_length=NAME_LENGTH_MAX)]
MessageIds = Annotated[
    tuple[Annotated[str, Meta(max_length=ID_LENGTH_MAX + NAME_LENGTH_MAX + 1)], ...],
    Meta(max_length=RECEIPT_IDS_MAX),
]
Limit = Annotated[int, Meta(ge=1, le=PAGE_MAX)]
_PAGE = 50


class ChatRequest(msgspec.Struct, frozen=True):
    """Base of the request bodies."""


class SendMessage(ChatRequest, frozen=True):
    to: Name
    text: Annotated[str, Meta(max_length=TEXT_LENGTH_MAX)]
    message_id: Annotated[str, Meta(max_length=ID_LENGTH_MAX)] | None = None


class MarkReceived(ChatRequest, frozen=True):
    message_ids: MessageIds


class MarkRead(ChatRequest, frozen=True):
    message_ids: MessageIds


class Typing(ChatRequest, frozen=True):
    to: Name


class OpenAccount(ChatRequest, frozen=True):
    """Creates an account without a password, for a user whose token was issued elsewhere."""


class DeleteAccount(ChatRequest, frozen=True):
    pass


class CreateRoom(ChatRequest, frozen=True):
    room: Name


class JoinRoom(ChatRequest, frozen=True):
    room: Name


class LeaveRoom(ChatRequest, frozen=True):
    room: Name


class PostToRoom(ChatRequest, frozen=True):
    room: Name
    text: Annotated[str, Meta(max_length=TEXT_LENGTH_MAX)]
    message_id: Annotated[str, Meta(max_length=ID_LENGTH_MAX)] | None = None


class CreateAccount(ChatRequest, frozen=True):
    name: Name
    password_hash: Annotated[str, Meta(max_length=512)]


class GetCredentials(ChatRequest, frozen=True):
    name: Name


class ListAccounts(ChatRequest, frozen=True):
    pattern: Annotated[str, Meta(max_length=NAME_LENGTH_MAX)] = "*"
    after: Name = ""
    limit: Limit = _PAGE


class ListConversations(ChatRequest, frozen=True):
    limit: Limit = _PAGE


class GetHistory(ChatRequest, frozen=True, rename={"peer": "with"}):
    """Messages with `peer` (an account or `#ROOM`) before message id `before`; the newest if None."""

    peer: Annotated[str, Meta(max_length=NAME_LENGTH_MAX + 1)]
    before: Annotated[str, Meta(max_length=256)] | None = None
    limit: Limit = _PAGE


class ListUndelivered(ChatRequest, frozen=True):
    limit: Limit = PAGE_MAX


class ListRooms(ChatRequest, frozen=True):
    pattern: Annotated[str, Meta(max_length=NAME_LENGTH_MAX)] = "*"
    after: Name = ""
    limit: Limit = _PAGE


class SubscribeRoom(ChatRequest, frozen=True):
    room: Name


COMMANDS: Mapping[str, type[ChatRequest]] = {
    "message.send": SendMessage,
    "message.received": MarkReceived,
    "message.read": MarkRead,
    "typing": Typing,
    "account.open": OpenAccount,
    "account.delete": DeleteAccount,
    "room.create": CreateRoom,
    "room.join": JoinRoom,
    "room.leave": LeaveRoom,
    "room.post": PostToRoom,
}
"""Sent by SEND. Each takes effect once; its result is an event in the sender's inbox."""
QUERIES: Mapping[str, type[ChatRequest]] = {
    "account.list": ListAccounts,
    "conversation.list": ListConversations,
    "conversation.history": GetHistory,
    "message.undelivered": ListUndelivered,
    "room.list": ListRooms,
    "room.subscribe": SubscribeRoom,
}
"""Sent by ASK. They have no effect, so a client that gets no reply may repeat them."""
ANONYMOUS_QUERIES: Mapping[str, type[ChatRequest]] = {
    "account.create": CreateAccount,
    "account.credentials": GetCredentials,
}
"""Sent by a gateway for a connection that is not authenticated yet."""


@dataclass(frozen=True, slots=True)
class ChatCommand:
    """A parsed command or query of one user."""

    user: str
    id: str
    request: ChatRequest
    reply_to: ReplyTo | None
    """Where the reply to a query goes; None for a command, whose result goes to the inbox."""
    sent_ms: int


class MalformedCommand(Exception):
    """A record that is not a valid command. Its sender gets an error result if it can be reached."""

    def __init__(
        self, code: str, message: str, user: str, id: str, reply_to: ReplyTo | None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.user = user
        """Empty if the record names no user: then no reply is sent."""
        self.id = id
        self.reply_to = reply_to


class _CommandValue(msgspec.Struct, frozen=True):
    op: str
    body: msgspec.Raw = msgspec.Raw(b"{}")


_value_decoder = msgspec.json.Decoder(_CommandValue)
_bodies: Mapping[str, msgspec.json.Decoder[ChatRequest]] = {
    op: msgspec.json.Decoder(kind)
    for op, kind in {**COMMANDS, **QUERIES, **ANONYMOUS_QUERIES}.items()
}


def parse_command(
    key: bytes | None, value: bytes | None, headers: Mapping[str, bytes | None], written_ms: int
) -> ChatCommand:
    """Raises MalformedCommand, and nothing else, for a record that is not a valid command."""
    user = _text(key)
    command_id = _text(headers.get("id"))
    reply_to = _reply_to(headers)

    def bad(code: str, message: str) -> MalformedCommand:
        return MalformedCommand(code, message, user, command_id, reply_to)

    if not user:
        raise bad("malformed", "the record has no user")
    if reply_to is None and not is_id(command_id):
        raise bad("malformed", f"an id has 1 to {ID_LENGTH_MAX} printable characters and no /")
    try:
        written = _value_decoder.decode(value or b"")
        decoder = _bodies.get(written.op)
        if decoder is None:
            raise bad("unknown-op", f"unknown op {written.op[:64]!r}")
        request = decoder.decode(written.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad("malformed", str(error)) from None
    allowed = COMMANDS if reply_to is None else QUERIES
    if headers.get("anonymous") == b"1":
        allowed = ANONYMOUS_QUERIES if reply_to is not None else {}
    if written.op not in allowed:
        verb = "sent" if reply_to is None else "asked"
        raise bad("forbidden", f"{written.op} cannot be {verb} on this connection")
    return ChatCommand(
        user, command_id, request, reply_to, _number(headers.get("at-ms"), written_ms)
    )


def _reply_to(headers: Mapping[str, bytes | None]) -> ReplyTo | None:
    correlation = _text(headers.get("correlation"))
    reply = _number(headers.get("reply"), -1)
    if not correlation or reply < 0:
        return None
    return ReplyTo(_text(headers.get("gateway")), reply, correlation)


def _text(data: bytes | None) -> str:
    try:
        return (data or b"").decode()
    except UnicodeDecodeError:
        return ""


def _number(data: bytes | None, default: int) -> int:
    text = _text(data)
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else default
