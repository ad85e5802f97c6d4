"""What a gateway knows of one connection. Everything in it can be handed to another process."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from kafkaesque.gateway.rules.outgoing import Outgoing
from kafkaesque.gateway.rules.outlets import Outlet
from kafkaesque.gateway.rules.stages import Stage
from kafkaesque.gateway.rules.tokens import Identity
from kafkaesque.gateway.rules.users import User


class Deadline(Enum):
    """Why a connection is closed by the clock."""

    AUTH = "auth"
    IDLE = "idle"
    SLOW = "slow"
    EXPIRED = "expired"


@dataclass(slots=True, eq=False)
class Session:
    """`user` and `identity` are there from READY on, `inbox` once RESUME was said."""

    id: str
    address: str
    opened_s: float
    heard_s: float
    stage: Stage = Stage.NEW
    app_version: str = ""
    client: str = ""
    identity: Identity | None = None
    user: User | None = None
    inbox: Outlet[Outgoing] | None = None
    rooms: dict[str, Outlet[Outgoing]] = field(default_factory=dict)
    credit: int | None = None
    in_flight: int = 0
    attempts: int = 0
    """Logins that failed."""
    blocked_s: float | None = None
    """Since when the socket is full. Waiting for credit costs nothing, so it may last."""

    def overdue(
        self, now_s: float, now_ms: int, auth_s: float, silence_s: float, slow_s: float
    ) -> Deadline | None:
        if self.identity is None:
            return Deadline.AUTH if now_s - self.opened_s >= auth_s else None
        if now_ms >= self.identity.expires_ms:
            return Deadline.EXPIRED
        if now_s - self.heard_s >= silence_s:
            return Deadline.IDLE
        if self.blocked_s is not None and now_s - self.blocked_s >= slow_s:
            return Deadline.SLOW
        return None

    def outlets(self) -> list[Outlet[Outgoing]]:
        return [*([self.inbox] if self.inbox is not None else []), *self.rooms.values()]
