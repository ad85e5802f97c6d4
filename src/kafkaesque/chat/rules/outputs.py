"""What a decision yields: everything that is written for one command or hand-over, all or nothing.

The driver writes it in the transaction that also commits the input, and folds `facts` after that; the
order within is the order in the log.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kafkaesque.chat.rules.facts import AnyFact
from kafkaesque.chat.rules.handovers import AnyHandover, Asked
from kafkaesque.events.chat import MessageStage


class Refusal(Exception):
    """The rules say no; the code is for programs, the message for people."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class InboxEvent:
    """One event for every client of `user`; `re` is the id of the command that it is the result of."""

    user: str
    type: str
    body: dict[str, Any]
    re: str | None = None


@dataclass(frozen=True, slots=True)
class RoomEvent:
    room: str
    type: str
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to an ask."""

    asked: Asked
    body: dict[str, Any] | None = None
    code: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """`kind` is account or room; `at_ms` None takes the name off the lists."""

    kind: str
    name: str
    at_ms: int | None


@dataclass(slots=True)
class Outputs:
    """See the module."""

    facts: list[AnyFact] = field(default_factory=list)
    handovers: list[AnyHandover] = field(default_factory=list)
    inbox: list[InboxEvent] = field(default_factory=list)
    rooms: list[RoomEvent] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    directory: list[DirectoryEntry] = field(default_factory=list)
    stages: list[MessageStage] = field(default_factory=list)
    is_repeat: bool = False

    def result(self, user: str, command_id: str, body: dict[str, Any]) -> None:
        """What the sender of a command is told, once."""
        self.inbox.append(InboxEvent(user, "result", {"ok": True, **body}, command_id))

    def refuse(self, user: str, command_id: str, code: str, message: str, **more: Any) -> None:
        body = {"ok": False, "code": code, "message": message, **more}
        self.inbox.append(InboxEvent(user, "result", body, command_id))
