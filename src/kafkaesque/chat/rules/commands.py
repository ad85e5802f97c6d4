"""What a client may say: a record of gw.cmd.* to a Command, or to the reason why it is none. Pure.

The gateway writes the record, so its headers can be trusted; value and ids are whatever a client sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import Meta

from kafkaesque.chat.rules.handovers import Asked
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


class Request(msgspec.Struct, frozen=True):
    """Base of what a command can ask for."""


class SendMessage(Request, frozen=True):
    to: Name
    text: Annotated[str, Meta(max_length=TEXT_LENGTH_MAX)]
    message_id: Annotated[str, Meta(max_length=ID_LENGTH_MAX)] | None = None


class MarkReceived(Request, frozen=True):
    message_ids: MessageIds


class MarkRead(Request, frozen=True):
    message_ids: MessageIds


class Typing(Request, frozen=True):
    to: Name


class OpenAccount(Request, frozen=True):
    """For whoever comes with a token of somebody else's making: an account without a password."""


class DeleteAccount(Request, frozen=True):
    pass


class CreateRoom(Request, frozen=True):
    room: Name


class JoinRoom(Request, frozen=True):
    room: Name


class LeaveRoom(Request, frozen=True):
    room: Name


class PostToRoom(Request, frozen=True):
    room: Name
    text: Annotated[str, Meta(max_length=TEXT_LENGTH_MAX)]
    message_id: Annotated[str, Meta(max_length=ID_LENGTH_MAX)] | None = None


class CreateAccount(Request, frozen=True):
    name: Name
    password_hash: Annotated[str, Meta(max_length=512)]


class GetCredentials(Request, frozen=True):
    name: Name


class ListAccounts(Request, frozen=True):
    pattern: Annotated[str, Meta(max_length=NAME_LENGTH_MAX)] = "*"
    after: Name = ""
    limit: Limit = _PAGE


class ListConversations(Request, frozen=True):
    limit: Limit = _PAGE


class GetHistory(Request, frozen=True, rename={"peer": "with"}):
    """`peer` is an account or `#ROOM`; messages before the one named, the newest if none is."""

    peer: Annotated[str, Meta(max_length=NAME_LENGTH_MAX + 1)]
    before: Annotated[str, Meta(max_length=256)] | None = None
    limit: Limit = _PAGE


class ListUndelivered(Request, frozen=True):
    limit: Limit = PAGE_MAX


class ListRooms(Request, frozen=True):
    pattern: Annotated[str, Meta(max_length=NAME_LENGTH_MAX)] = "*"
    after: Name = ""
    limit: Limit = _PAGE


class SubscribeRoom(Request, frozen=True):
    room: Name


COMMANDS: Mapping[str, type[Request]] = {
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
"""To be sent: each takes effect once, and its result is an event in the sender's inbox."""
ASKS: Mapping[str, type[Request]] = {
    "account.list": ListAccounts,
    "conversation.list": ListConversations,
    "conversation.history": GetHistory,
    "message.undelivered": ListUndelivered,
    "room.list": ListRooms,
    "room.subscribe": SubscribeRoom,
}
"""To be asked: without effect, so whoever gets no answer asks again."""
ANONYMOUS_ASKS: Mapping[str, type[Request]] = {
    "account.create": CreateAccount,
    "account.credentials": GetCredentials,
}
"""Asked by a gateway for somebody who is not yet anybody."""


@dataclass(frozen=True, slots=True)
class Command:
    """One thing that one user wants."""

    user: str
    id: str
    request: Request
    asked: Asked | None
    """Who waits for the answer; None for what was sent and has its result in the inbox."""
    sent_ms: int


class BadCommand(Exception):
    """A record that is no command. Whoever can be told, is."""

    def __init__(self, code: str, message: str, user: str, id: str, asked: Asked | None) -> None:
        super().__init__(message)
        self.code = code
        self.user = user
        """Empty if the record names none: then nobody can be told."""
        self.id = id
        self.asked = asked


class _Written(msgspec.Struct, frozen=True):
    op: str
    body: msgspec.Raw = msgspec.Raw(b"{}")


_written = msgspec.json.Decoder(_Written)
_bodies: Mapping[str, msgspec.json.Decoder[Request]] = {
    op: msgspec.json.Decoder(kind) for op, kind in {**COMMANDS, **ASKS, **ANONYMOUS_ASKS}.items()
}


def parse_command(
    key: bytes | None, value: bytes | None, headers: Mapping[str, bytes | None], written_ms: int
) -> Command:
    """BadCommand, and nothing else, if it is none."""
    user = _text(key)
    command_id = _text(headers.get("id"))
    asked = _asked(headers)

    def bad(code: str, message: str) -> BadCommand:
        return BadCommand(code, message, user, command_id, asked)

    if not user:
        raise bad("malformed", "the record has no user")
    if asked is None and not is_id(command_id):
        raise bad("malformed", f"an id has 1 to {ID_LENGTH_MAX} printable characters and no /")
    try:
        written = _written.decode(value or b"")
        decoder = _bodies.get(written.op)
        if decoder is None:
            raise bad("unknown-op", f"there is no op {written.op[:64]!r}")
        request = decoder.decode(written.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad("malformed", str(error)) from None
    allowed = COMMANDS if asked is None else ASKS
    if headers.get("anonymous") == b"1":
        allowed = ANONYMOUS_ASKS if asked is not None else {}
    if written.op not in allowed:
        verb = "sent" if asked is None else "asked"
        raise bad("forbidden", f"{written.op} cannot be {verb} on this connection")
    return Command(user, command_id, request, asked, _number(headers.get("at-ms"), written_ms))


def _asked(headers: Mapping[str, bytes | None]) -> Asked | None:
    correlation = _text(headers.get("correlation"))
    reply = _number(headers.get("reply"), -1)
    if not correlation or reply < 0:
        return None
    return Asked(_text(headers.get("gateway")), reply, correlation)


def _text(data: bytes | None) -> str:
    try:
        return (data or b"").decode()
    except UnicodeDecodeError:
        return ""


def _number(data: bytes | None, otherwise: int) -> int:
    text = _text(data)
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else otherwise
