"""The messages of the edge protocol: the opcodes, and the payload of each.

Unknown fields are ignored, so that fields can be added. A missing field or one of the wrong type is a
violation. docs/GATEWAY.md describes the order of messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

import msgspec

PROTOCOL_VERSION = 1
"""The first byte of every TCP frame, and part of the WebSocket subprotocol's name."""


class Opcode(IntEnum):
    """Values below 64 are sent by clients, the others by gateways. They never change."""

    HELLO = 1
    AUTH = 2
    RESUME = 3
    PING = 4
    SEND = 5
    ASK = 6
    SUB = 7
    UNSUB = 8
    CREDIT = 9
    LOGOUT = 10

    WELCOME = 64
    RESUMED = 65
    INVALID_SESSION = 66
    PONG = 67
    ACK = 68
    ANSWER = 69
    EVENT = 70
    GOAWAY = 71
    ERROR = 72
    BYE = 73

    @property
    def is_from_client(self) -> bool:
        return self < Opcode.WELCOME


NAME_LENGTH_MAX = 128
"""Maximum length of the name of a user or room, an id, an operation."""


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """Base of all payloads."""


# -- from clients ----------------------------------------------------------------------------------


class Hello(Message, frozen=True):
    """The first message of a connection. Its encoding becomes the connection's."""

    app_version: str = ""
    """Selects the back ends through the routes. Empty: the default route."""
    client: str = ""
    credit: int | None = None
    """Events that the gateway may send before a CREDIT; None: limited by the socket only."""


class Auth(Message, frozen=True):
    """Authenticates with `token`, or with `name` and `password`."""

    token: str | None = None
    name: str | None = None
    password: str | None = None
    register: bool = False
    refresh: bool = False
    """With `token`: the gateway issues a new token, if it issued the old one."""


class Resume(Message, frozen=True):
    """Where events start: after `position`, from `earliest`, or from now on (None)."""

    position: str | None = None


class Ping(Message, frozen=True):
    t: int = 0


class Send(Message, frozen=True):
    """A command. Repeated with the same id it takes effect once."""

    id: str
    op: str
    body: msgspec.Raw = msgspec.Raw(b"")


class Ask(Message, frozen=True):
    """A query: answered once, or not at all."""

    id: str
    op: str
    body: msgspec.Raw = msgspec.Raw(b"")


class Sub(Message, frozen=True):
    id: str
    room: str
    position: str | None = None
    """As in RESUME, but in the room's events."""


class Unsub(Message, frozen=True):
    id: str
    room: str


class Credit(Message, frozen=True):
    """Allows the gateway to send this many more events."""

    events: int


class Logout(Message, frozen=True):
    """Revokes the token on every gateway and closes the connection."""


# -- from gateways ---------------------------------------------------------------------------------


class Welcome(Message, frozen=True):
    """The answer to a successful AUTH."""

    user: str
    session: str
    gateway: str
    heartbeat_ms: int
    """The client must send something at least this often."""
    expires_ms: int
    """Wall-clock time; a new AUTH before then keeps the connection open."""
    token: str | None = None
    targets: tuple[str, ...] = ()
    """Gateways that read this user's inbox anyway, best first: preferred for the next connection."""
    frame_max_bytes: int = 0


class Resumed(Message, frozen=True):
    """All missed events have been sent; the following events are live."""

    replayed: int
    position: str


class InvalidSession(Message, frozen=True):
    """The position cannot be resumed from: load a snapshot, then RESUME from `live`."""

    reason: str
    snapshot: bool
    live: str
    room: str | None = None


class Pong(Message, frozen=True):
    """All events up to `position` have been sent."""

    t: int = 0
    position: str | None = None


class Ack(Message, frozen=True):
    """The command is in the log."""

    id: str


class Answer(Message, frozen=True):
    id: str
    ok: bool
    body: msgspec.Raw = msgspec.Raw(b"")
    code: str | None = None
    message: str | None = None


class Event(Message, frozen=True):
    """`position` identifies the event; resume from it to continue after the event."""

    position: str
    type: str
    body: msgspec.Raw = msgspec.Raw(b"")
    re: str | None = None
    at_ms: int = 0
    room: str | None = None


class GoAway(Message, frozen=True):
    """Connect to one of `targets` and resume there, `after_ms` from now."""

    after_ms: int
    targets: tuple[str, ...] = ()


class Error(Message, frozen=True):
    """The request `id` failed; without an id, the error concerns the connection."""

    code: str
    retry: bool
    message: str = ""
    id: str | None = None
    retry_after_ms: int = 0


class Bye(Message, frozen=True):
    """The connection closes now. `code` is a CloseCode."""

    code: int
    reconnect: bool
    message: str = ""


MESSAGES: Mapping[Opcode, type[Message]] = {
    Opcode.HELLO: Hello,
    Opcode.AUTH: Auth,
    Opcode.RESUME: Resume,
    Opcode.PING: Ping,
    Opcode.SEND: Send,
    Opcode.ASK: Ask,
    Opcode.SUB: Sub,
    Opcode.UNSUB: Unsub,
    Opcode.CREDIT: Credit,
    Opcode.LOGOUT: Logout,
    Opcode.WELCOME: Welcome,
    Opcode.RESUMED: Resumed,
    Opcode.INVALID_SESSION: InvalidSession,
    Opcode.PONG: Pong,
    Opcode.ACK: Ack,
    Opcode.ANSWER: Answer,
    Opcode.EVENT: Event,
    Opcode.GOAWAY: GoAway,
    Opcode.ERROR: Error,
    Opcode.BYE: Bye,
}
OPCODES: Mapping[type[Message], Opcode] = {kind: opcode for opcode, kind in MESSAGES.items()}
