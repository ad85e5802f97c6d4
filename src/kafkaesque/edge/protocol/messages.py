"""The payload of each opcode. Unknown fields are ignored, so that a field can be added; a field that is
missing or of the wrong type is a violation."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kafkaesque.edge.protocol.opcodes import Opcode

NAME_LENGTH_MAX = 128
"""Characters of a user, a room, an id, an operation."""


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """What every payload is."""


# -- said by clients -------------------------------------------------------------------------------


class Hello(Message, frozen=True):
    """The first message of a connection. Its encoding is the connection's."""

    app_version: str = ""
    """Chooses the back ends, by the routes. Empty: the default route."""
    client: str = ""
    credit: int | None = None
    """Events that may be sent before a CREDIT; None: as many as the socket takes."""


class Auth(Message, frozen=True):
    """Either `token`, or `name` and `password`."""

    token: str | None = None
    name: str | None = None
    password: str | None = None
    register: bool = False
    refresh: bool = False
    """With `token`: the gateway issues a fresh one, if the old is its own."""


class Resume(Message, frozen=True):
    """From where events are wanted: after `position`, from `earliest`, or from now on."""

    position: str | None = None


class Ping(Message, frozen=True):
    t: int = 0


class Send(Message, frozen=True):
    """A command. Repeated with the same id it takes effect once."""

    id: str
    op: str
    body: msgspec.Raw = msgspec.Raw(b"")


class Ask(Message, frozen=True):
    """A question: answered once, or not at all."""

    id: str
    op: str
    body: msgspec.Raw = msgspec.Raw(b"")


class Sub(Message, frozen=True):
    id: str
    room: str
    position: str | None = None
    """As in RESUME, but of the room."""


class Unsub(Message, frozen=True):
    id: str
    room: str


class Credit(Message, frozen=True):
    """So many more events may be sent."""

    events: int


class Logout(Message, frozen=True):
    """The token is refused from now on, on every gateway; the connection closes."""


# -- said by gateways ------------------------------------------------------------------------------


class Welcome(Message, frozen=True):
    """Answer to AUTH."""

    user: str
    session: str
    gateway: str
    heartbeat_ms: int
    """The client says something at least this often."""
    expires_ms: int
    """Wall clock; a new AUTH before then keeps the connection."""
    token: str | None = None
    targets: tuple[str, ...] = ()
    """Gateways that read this user's inbox anyway, best first: good ones to connect to next time."""
    frame_max_bytes: int = 0


class Resumed(Message, frozen=True):
    """All that was missed has been sent; from here on events are live."""

    replayed: int
    position: str


class InvalidSession(Message, frozen=True):
    """`position` cannot be resumed from: load a snapshot, then RESUME from `live`."""

    reason: str
    snapshot: bool
    live: str
    room: str | None = None


class Pong(Message, frozen=True):
    """All events up to `position` have been sent."""

    t: int = 0
    position: str | None = None


class Ack(Message, frozen=True):
    """The command stands in the log."""

    id: str


class Answer(Message, frozen=True):
    id: str
    ok: bool
    body: msgspec.Raw = msgspec.Raw(b"")
    code: str | None = None
    message: str | None = None


class Event(Message, frozen=True):
    """`position` names the event, and is where to resume after it."""

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
    """The request `id` failed; without id, something about the connection."""

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
