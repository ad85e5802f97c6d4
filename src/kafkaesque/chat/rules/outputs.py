"""The outputs of one decision: everything that is written for one command or hand-over.

The back end writes all of it in the transaction that also commits the input's offset. The order within
each list is the order in the log.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kafkaesque.chat.rules.facts import AnyFact
from kafkaesque.chat.rules.handovers import AnyHandover, ReplyTo
from kafkaesque.events.chat import MessageStage


class RequestRejected(Exception):
    """A rule rejected the request. The code is for programs, the message for people."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class InboxEvent:
    """An event for every client of `user`. A result carries the id of its command in `re`."""

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
class QueryReply:
    """The reply to a query; an error if `code` is set."""

    to: ReplyTo
    body: dict[str, Any] | None = None
    code: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """A name for the directory. `kind` is account or room; `at_ms` None removes the name."""

    kind: str
    name: str
    at_ms: int | None


@dataclass(slots=True)
class Outputs:
    """See the module's docstring."""

    facts: list[AnyFact] = field(default_factory=list)
    handovers: list[AnyHandover] = field(default_factory=list)
    inbox: list[InboxEvent] = field(default_factory=list)
    rooms: list[RoomEvent] = field(default_factory=list)
    replies: list[QueryReply] = field(default_factory=list)
    directory: list[DirectoryEntry] = field(default_factory=list)
    stages: list[MessageStage] = field(default_factory=list)
    is_repeat: bool = False

    def result(self, user: str, command_id: str, body: dict[str, Any]) -> None:
        """Adds the success result of a command to the sender's inbox."""
        self.inbox.append(InboxEvent(user, "result", {"ok": True, **body}, command_id))

    def refuse(self, user: str, command_id: str, code: str, message: str, **more: Any) -> None:
        """Adds the error result of a command to the sender's inbox."""
        body = {"ok": False, "code": code, "message": message, **more}
        self.inbox.append(InboxEvent(user, "result", body, command_id))
