"""The life of a connection, as a table: which messages may be said in which stage.

    NEW --HELLO--> GREETED --AUTH--> READY --RESUME--> RESUMING --> LIVE

Whatever is not in the table closes the connection as BAD_STATE. A message that has to wait (a token is
being checked) holds up those behind it, so a client may say HELLO, AUTH and RESUME in one breath.
"""

from __future__ import annotations

from collections.abc import Mapping
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


class Stage(Enum):
    NEW = "new"
    GREETED = "greeted"
    READY = "ready"
    """Authenticated. Commands are taken, no event has been asked for."""
    RESUMING = "resuming"
    LIVE = "live"
    CLOSED = "closed"


_SPEAKING: frozenset[type[Message]] = frozenset({Auth, Ping, Send, Ask, Sub, Unsub, Credit, Logout})

SAYABLE: Mapping[Stage, frozenset[type[Message]]] = {
    Stage.NEW: frozenset({Hello}),
    Stage.GREETED: frozenset({Auth, Ping}),
    Stage.READY: _SPEAKING | {Resume},
    Stage.RESUMING: _SPEAKING,
    # Again: after a snapshot, or to hear it all once more.
    Stage.LIVE: _SPEAKING | {Resume},
    Stage.CLOSED: frozenset(),
}


def check_sayable(stage: Stage, message: Message) -> None:
    if type(message) not in SAYABLE[stage]:
        name = OPCODES[type(message)].name
        raise Violation(CloseCode.BAD_STATE, f"{name} may not be said now ({stage.value})")
