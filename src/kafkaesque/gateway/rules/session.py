"""The state of one client connection, and which messages a client may send in which stage.

    NEW --HELLO--> GREETED --AUTH--> READY --RESUME--> RESUMING --> LIVE

A message that the table does not allow closes the connection with BAD_STATE. A message that takes time (a
token is being verified) delays those after it, so a client may send HELLO, AUTH and RESUME at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from kafkaesque.edge.protocol.codes import CloseCode, Violation
from kafkaesque.edge.protocol.messages import (
    OPCODES,
    Ask,
    Auth,
    Credit,
    Hello,
    Logout,
    Message,
    Ping,
    Resume,
    Send,
    Sub,
    Unsub,
)
from kafkaesque.gateway.rules.fan_out import Subscriber
from kafkaesque.gateway.rules.outgoing import OutgoingEvent
from kafkaesque.gateway.rules.tokens import TokenIdentity
from kafkaesque.gateway.rules.users import User


class SessionStage(Enum):
    NEW = "new"
    GREETED = "greeted"
    READY = "ready"
    """Authenticated: commands are accepted, events are not yet delivered."""
    RESUMING = "resuming"
    LIVE = "live"
    CLOSED = "closed"


_AUTHENTICATED: frozenset[type[Message]] = frozenset(
    {Auth, Ping, Send, Ask, Sub, Unsub, Credit, Logout}
)

ALLOWED: Mapping[SessionStage, frozenset[type[Message]]] = {
    SessionStage.NEW: frozenset({Hello}),
    SessionStage.GREETED: frozenset({Auth, Ping}),
    SessionStage.READY: _AUTHENTICATED | {Resume},
    SessionStage.RESUMING: _AUTHENTICATED,
    # A client may resume again: after a snapshot, or to receive everything once more.
    SessionStage.LIVE: _AUTHENTICATED | {Resume},
    SessionStage.CLOSED: frozenset(),
}


def check_allowed(stage: SessionStage, message: Message) -> None:
    if type(message) not in ALLOWED[stage]:
        name = OPCODES[type(message)].name
        raise Violation(CloseCode.BAD_STATE, f"{name} is not allowed now ({stage.value})")


class Deadline(Enum):
    """Why the clock closes a connection."""

    AUTH = "auth"
    IDLE = "idle"
    SLOW = "slow"
    EXPIRED = "expired"


@dataclass(slots=True, eq=False)
class EdgeSession:
    """Everything in it can be handed over to another process.

    `user` and `identity` are set from READY on, `inbox` after RESUME.
    """

    id: str
    address: str
    opened_s: float
    received_s: float
    """When the client last sent something."""
    stage: SessionStage = SessionStage.NEW
    app_version: str = ""
    client: str = ""
    identity: TokenIdentity | None = None
    user: User | None = None
    inbox: Subscriber[OutgoingEvent] | None = None
    rooms: dict[str, Subscriber[OutgoingEvent]] = field(default_factory=dict)
    credit: int | None = None
    in_flight: int = 0
    attempts: int = 0
    """Failed logins."""
    blocked_s: float | None = None
    """Since when the socket is full. Waiting for credit costs nothing, so it may last."""

    def require_user(self) -> User:
        if self.user is None:
            raise Violation(CloseCode.BAD_STATE, "not logged in")
        return self.user

    def missed_deadline(
        self, now_s: float, now_ms: int, auth_s: float, silence_s: float, slow_s: float
    ) -> Deadline | None:
        if self.identity is None:
            return Deadline.AUTH if now_s - self.opened_s >= auth_s else None
        if now_ms >= self.identity.expires_ms:
            return Deadline.EXPIRED
        if now_s - self.received_s >= silence_s:
            return Deadline.IDLE
        if self.blocked_s is not None and now_s - self.blocked_s >= slow_s:
            return Deadline.SLOW
        return None
